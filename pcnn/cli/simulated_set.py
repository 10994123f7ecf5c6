"""What the subcommands of `pcnn simulate` share: where a set goes, and how its writing ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from pcnn.escaping import say


def write_set(
    simulate: Callable[..., Path],
    root: Path | None,
    name: str,
    seed: int,
    version: str,
    **settings: Any,
) -> None:
    """Write a simulated set and print where it is.

    Args:
        simulate: writes it.
        root: the folder; None means ``data/simulated/NAME-SEED-VERSION``.
        name: of the format.
        seed: of all randomness.
        version: of the simulator.
        settings: of the simulator.

    Raises:
        typer.BadParameter: the simulator refuses its settings or the folder, or lacks a library.
    """
    target = Path("data") / "simulated" / f"{name}-{seed}-{version}" if root is None else root
    try:
        written = simulate(target, seed=seed, **settings)
    except (ValueError, FileExistsError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error
    say(written)

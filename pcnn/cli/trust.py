"""The option of commands that read a checkpoint: whose code its configuration may name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pcnn.cli.app import refusing

AllowTargets = Annotated[
    list[str] | None,
    typer.Option(
        help="Package whose classes the checkpoint may name besides pcnn's: code of your own that "
        "you trust; repeat."
    ),
]


def packages(given: Sequence[str] | None) -> tuple[str, ...]:
    """The packages of the option.

    Raises:
        typer.BadParameter: one is no dotted name.
    """
    from pcnn.experiment.targets import check_packages

    with refusing():
        check_packages(given or ())
    return tuple(given or ())

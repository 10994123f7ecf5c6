"""`pcnn export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.escaping import say


def export(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint of a run (best.ckpt).")],
    out: Annotated[Path, typer.Argument(help="File to write (.safetensors).")],
    revision: Annotated[
        str | None,
        typer.Option(help="Commit of the training, if the run did not record it."),
    ] = None,
) -> None:
    """Write the network of a checkpoint without its optimiser, in half precision.

    The file can be used like a checkpoint (register, describe, predict, eval.py), except to resume
    a training. It names no folders of this machine.
    """
    from pcnn.experiment.export import export as written

    if out.suffix != ".safetensors":
        raise typer.BadParameter(f"{out}: name a file that ends in .safetensors")
    with refusing():
        facts = written(checkpoint, out, revision)
    figures = facts.pop("figures")
    say(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")
    for name, value in {**facts, **figures}.items():
        say(f"{name}: {value}")

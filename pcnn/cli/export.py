"""`pcnn export`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.cli.options import Device, chosen_device
from pcnn.escaping import say


class BitsChoice(str, Enum):
    """Sizes of a weight."""

    sixteen = "16"
    eight = "8"


def export(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint of a run (best.ckpt).")],
    out: Annotated[Path, typer.Argument(help="File to write (.safetensors).")],
    revision: Annotated[
        str | None,
        typer.Option(help="Commit of the training, if the run did not record it."),
    ] = None,
    bits: Annotated[
        BitsChoice,
        typer.Option(help="Bits of a weight; 8 with a scale for each kernel slot and output."),
    ] = BitsChoice.sixteen,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Find the temperature at which probabilities are right, on the validation clouds "
            "of the run.",
        ),
    ] = False,
    root: Annotated[
        str | None, typer.Option(help="Folder of the data set for --calibrate; the run's.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Write the network of a checkpoint without its optimiser, in half precision or in 8 bits.

    The file can be used like a checkpoint (register, describe, predict, eval.py), except to resume
    a training. It names no folders of this machine.
    """
    from pcnn.experiment.export import export as written

    if out.suffix != ".safetensors":
        raise typer.BadParameter(f"{out}: name a file that ends in .safetensors")
    with refusing():
        temperature = None
        if calibrate:
            from pcnn.experiment.calibrate import calibrate as measured

            found = measured(checkpoint, chosen_device(device), root)
            temperature = found.temperature
            say(
                f"temperature {temperature:.3f}: calibration error {found.before:.3f} without, "
                f"{found.after:.3f} with it, on {found.clouds} validation clouds"
            )
        facts = written(checkpoint, out, revision, temperature, int(bits.value))
    figures = facts.pop("figures")
    say(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")
    for name, value in {**facts, **figures}.items():
        say(f"{name}: {value}")

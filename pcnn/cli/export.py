"""`pcnn export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from pcnn.cli.app import ARGUMENT, refusing
from pcnn.cli.options import AllowTargets, Device, chosen_device, packages
from pcnn.messages import say


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of `pcnn export`."""

    checkpoint: Annotated[Path, ARGUMENT, "Checkpoint of a run (best.ckpt)."]
    out: Annotated[Path, ARGUMENT, "File to write (.safetensors)."]
    revision: Annotated[str | None, "Commit of the training, if the run did not record it."] = None
    bits: Annotated[
        Literal["16", "8"], "Bits of a weight; 8 with a scale for each kernel slot and output."
    ] = "16"
    calibrate: Annotated[
        bool,
        "--calibrate",
        "Find the temperature at which probabilities are right, on the validation clouds of the "
        "run.",
    ] = False
    root: Annotated[str | None, "Folder of the data set for --calibrate; the run's."] = None
    device: Device = "auto"
    allow_targets: AllowTargets = None


def export(options: ExportOptions) -> None:
    """Write the network of a checkpoint without its optimiser, in half precision or in 8 bits.

    The file can be used like a checkpoint (register, predict, eval), except to resume a training.
    It names no folders of this machine.
    """
    from pcnn.experiment.export import export as written

    checkpoint, out = options.checkpoint, options.out
    if out.suffix != ".safetensors":
        raise typer.BadParameter(f"{out}: name a file that ends in .safetensors")
    with refusing():
        temperature = None
        own = packages(options.allow_targets)
        if options.calibrate:
            from pcnn.experiment.export import calibrate

            found = calibrate(checkpoint, chosen_device(options.device), options.root, own)
            temperature = found.temperature
            say(
                f"temperature {temperature:.3f}: calibration error {found.before:.3f} without, "
                f"{found.after:.3f} with it, on {found.clouds} validation clouds"
            )
        facts = written(checkpoint, out, options.revision, temperature, int(options.bits), own)
    figures = facts.pop("figures")
    say(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")
    for name, value in {**facts, **figures}.items():
        say(f"{name}: {value}")

"""`pcnn export` and `pcnn convert`: files of weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from pcnn.cli.app import ARGUMENT, refusing
from pcnn.messages import say
from pcnn.ranges import Positive

PACKAGES = "torchsparse or minkowski."


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    checkpoint: Annotated[Path, ARGUMENT, "Checkpoint of a run (best.ckpt)."]
    out: Annotated[Path, ARGUMENT, "File to write (.safetensors)."]
    bits: Annotated[Literal["16", "8"], "Bits of a weight; 8 with scales."] = "16"
    temperature: Annotated[
        Positive | None, "That logits are divided by, so that probabilities are calibrated."
    ] = None


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
        facts = written(checkpoint, out, options.temperature, int(options.bits))
    say(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")
    for name, value in facts.items():
        say(f"{name}: {value}")


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    file: Annotated[Path, ARGUMENT, "Weights: safetensors, or written by torch.save."]
    model: Annotated[str, "Network of ours: minkunet, spvcnn, resunet."]
    source: Annotated[str, "--from", f"Package that wrote the file: {PACKAGES}"]
    out: Annotated[Path | None, "File to write (.safetensors); a check alone unless given."] = None


def convert(options: ConvertOptions) -> None:
    """Turn the weights of a published network of another package into ours.

    Prints every layer with its name in the file. Nothing in the file is run, and what does not fit
    is refused before anything is written.
    """
    from pcnn.interop import published, read_state, save_network

    out = options.out
    if out is not None and out.suffix != ".safetensors":
        raise typer.BadParameter(f"{out}: name a file that ends in .safetensors")
    with refusing():
        known = published(options.source, options.model)
        network, arguments, theirs = known.to_ours(read_state(options.file))
        if out is not None:
            about = {"source": known.source, "licence": known.licence}
            save_network(out, network, known.make.__name__, arguments, about)
    say(f"{known.source}: " + ", ".join(f"{k}={v:g}" for k, v in arguments.items()))
    widths = [max(map(len, names)) for names in (theirs.keys(), theirs.values())]
    for ours, other in theirs.items():
        shape = network.get_parameter(f"{ours}.weight").shape
        say(f"{ours:{widths[0]}}  {other:{widths[1]}}  {'x'.join(map(str, shape))}")
    done = "fits; --out FILE writes it" if out is None else f"written to {out}"
    say(f"{len(theirs)} layers: {done}")

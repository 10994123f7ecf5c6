"""`pcnn tune`: choose dataflows for a network on samples of its data, or compile its kernels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.options import Conf, Device, Overrides, chosen_device, composed
from pcnn.messages import counted, say
from pcnn.ranges import Count

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from pcnn.kernels.recorded import Launch
    from pcnn.runtime.tuning import TunedLayer
    from pcnn.tensor import SparseTensor

#: Points of batches from small to large: sizes decide how a product is cut into programs.
POINTS = (20_000, 80_000, 320_000)
#: Autocast dtype of the trainer's mixed precisions, and dtype of the weights of others.
AUTOCAST = {"16-mixed": "float16", "bf16-mixed": "bfloat16"}
PURE = {"16-true": "float16", "bf16-true": "bfloat16", "64-true": "float64"}


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    overrides: Overrides
    samples: Annotated[Count, "Batches to measure."] = 3
    backward: Annotated[bool, "Measure gradients, too."] = False
    precision: Annotated[str | None, "As 16-mixed; trainer.precision unless given."] = None
    device: Device = "auto"
    out: Annotated[Path | None, "File of what was chosen: what engine.layers=FILE takes."] = None
    compile_only: Annotated[bool, "--compile-only", "Compile kernels, and choose nothing."] = False
    points: Annotated[list[Count] | None, "Points of a batch with --compile-only; repeat."] = None
    conf: Conf = None


def tune(options: TuneOptions) -> None:
    """Find the quickest settings for every layer of a network, on samples of a data set.

    The time of the whole network decides. Give the options of the training, because dtype and batch
    size matter. An engine that follows a paper (engine=minuet) keeps to that paper's settings.

    With --compile-only the kernels of a training and its evaluation are compiled for the GPU of
    this machine, without data.
    """
    from pcnn.experiment.networks import engine_of
    from pcnn.programs.command_line import short_errors

    where = chosen_device(options.device)
    if options.compile_only and where.type != "cuda":
        raise typer.BadParameter(
            "torch sees no GPU (pcnn doctor says why), and on a CPU there is nothing to compile"
        )
    with short_errors():
        cfg = composed(options.overrides, options.conf)
        precision = str(options.precision or cfg.trainer.get("precision", "32-true"))
        if options.compile_only:
            compile_kernels(cfg, where, precision, options.points or POINTS)
            return
        if options.out is not None and engine_of(cfg).settings is None:
            raise typer.BadParameter(
                f"--out keeps settings of layers, and engine={cfg.engine.name} has none"
            )
        layers = tuned(cfg, where, precision, options)
        if options.out is not None:
            write_settings(layers, options.out)


def tuned(
    cfg: DictConfig, device: torch.device, precision: str, options: TuneOptions
) -> list[TunedLayer]:
    """Tune the network of a configuration, and print what was chosen."""
    import torch

    from pcnn.console import Console
    from pcnn.experiment import build, networks
    from pcnn.runtime.tuning import tune

    networks.check_engine(cfg, device)
    console, backward = Console(), options.backward
    data: Any = build.data(cfg)
    loader = data.train_dataloader() if backward else data.val_dataloader()
    batches = list(islice(loader or data.train_dataloader(), options.samples))
    torch.manual_seed(cfg.seed)
    net = networks.network(cfg, int(data.in_channels), len(data.class_names))
    dtype, context = in_precision(precision, device)
    net = net.to(device, dtype)
    with context:
        layers = tune(net, batches, options.samples, backward)
        for layer in layers:
            console.say(layer)
    told = counted(len(layers), "layer") if layers else "no layer"
    console.say(f"{device}: {told} quicker with settings of its own")
    if data.source_kind != "real":
        console.print("measured on SIMULATED data", style="bold yellow")
    return layers


def write_settings(layers: Sequence[TunedLayer], out: Path) -> None:
    """Write settings of the layers that differ from the engine's, for ``engine.layers``."""
    from omegaconf import OmegaConf

    from pcnn.experiment.run_folder import write_whole

    kept = {one.name: one.settings.changed(one.before) for one in layers}
    write_whole(out, OmegaConf.to_yaml(OmegaConf.create(kept)))
    say(f"{counted(len(kept), 'layer')} with settings of its own, for engine.layers={out}")


def compile_kernels(
    cfg: DictConfig, device: torch.device, precision: str, points: Sequence[int]
) -> None:
    """Compile what a training and its evaluation launch on batches of these numbers of points."""
    import torch

    from pcnn.callbacks.warm_up import compile_shown
    from pcnn.experiment import networks
    from pcnn.kernels.compiler import compile_sources_ahead

    began = time.perf_counter()
    device = torch.device("cuda", device.index or 0)
    networks.check_engine(cfg, device)
    torch.cuda.set_device(device)
    compile_sources_ahead(torch.cuda.get_device_capability(device)).wait()
    launches = launches_of_training(cfg, device, precision, points)
    size = compile_shown(launches, device, say)
    say(
        f"{counted(len(launches), 'variant')} of kernels, {size / 2**20:.1f} MiB, ready for "
        f"{torch.cuda.get_device_name(device)} after {time.perf_counter() - began:.1f} s"
    )


def launches_of_training(
    cfg: DictConfig, device: torch.device, precision: str, points: Sequence[int]
) -> list[Launch]:
    """Variants of kernels that a training and its evaluation launch."""
    from pcnn.experiment import networks
    from pcnn.experiment.run_config import data_module
    from pcnn.runtime.observed import launches_of

    data: Any = data_module(cfg)
    channels = int(data.in_channels)
    classes = int(cfg.task.channels) if cfg.task.get("channels") else len(data.class_names)
    dtype, context = in_precision(precision, device)
    net = networks.network(cfg, channels, classes).to(device, dtype)
    found: dict[Launch, None] = {}
    with context:
        for number in points:
            for backward in (True, False):
                net.train(backward)
                x = surface(cfg, net, number, channels, float(data.voxel_size))
                found |= dict.fromkeys(launches_of(net, (x,), backward))
    return list(found)


def surface(
    cfg: DictConfig, net: torch.nn.Module, points: int, channels: int, cell: float
) -> SparseTensor:
    """A hilly sheet of random points, two on three cells [m], with features [N, channels] of 0."""
    import torch

    from pcnn.experiment import networks

    weight = next(net.parameters())
    random = torch.Generator().manual_seed(0)
    across = torch.rand(points, 2, generator=random) * (1.5 * points) ** 0.5  # [cells]
    height = 20 * (across[:, :1] / 30).sin() + 20 * (across[:, 1:] / 40).cos()
    places = (torch.cat([across, height], 1) * cell).to(weight.device)
    inputs = weight.new_zeros(points, channels)
    scans = torch.zeros(points, dtype=torch.int64, device=weight.device)
    return networks.placement(cfg).place(places, inputs, scans, 1, cell)


def in_precision(
    precision: str, device: torch.device
) -> tuple[torch.dtype, AbstractContextManager[Any]]:
    """Dtype of the weights of a network of this precision of a trainer, and its autocast."""
    import torch

    dtype: torch.dtype = getattr(torch, PURE.get(precision, "float32"))
    if precision not in AUTOCAST:
        return dtype, nullcontext()
    return dtype, torch.autocast(device.type, getattr(torch, AUTOCAST[precision]))

"""`pcnn warmup`: compile the kernels of a training before it, on all cores, without its data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.composed import CONF, Conf, composed
from pcnn.cli.options import Device, chosen_device
from pcnn.cli.precision import autocast, dtype_of
from pcnn.plural import counted

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from pcnn.kernels.recorded import Launch
    from pcnn.tensor import SparseTensor

#: Points of batches from small to large: sizes decide how a product is cut into programs.
POINTS = (20_000, 80_000, 320_000)


def warmup(
    overrides: Annotated[
        list[str],
        typer.Argument(help="An experiment of conf/experiment, then options of train.py."),
    ],
    points: Annotated[
        list[int] | None,
        typer.Option(min=1, max=1 << 30, help="Points of a batch; repeat. Default: several."),
    ] = None,
    device: Device = "auto",
    conf: Conf = CONF,
) -> None:
    """Compile the kernels of a training and its evaluation ahead, for the GPU of this machine.

    The network runs on made-up surfaces of several sizes without its products, which finds out what
    they need. No data is read. Later runs of the same configuration find the kernels on disk.
    """
    from pcnn.experiment.short_errors import short_errors

    where = chosen_device(device)
    if where.type != "cuda":
        raise typer.BadParameter(
            "kernels are compiled for a GPU that is there, and torch sees none here (pcnn doctor "
            "says why); on a CPU there is nothing to compile"
        )
    first, *rest = overrides
    chosen = overrides if "=" in first else [f"experiment={first}", *rest]
    with short_errors(conf):
        _warmup(composed(chosen, conf), where, tuple(points or POINTS))


def _warmup(cfg: DictConfig, device: torch.device, points: Sequence[int]) -> None:
    import torch

    from pcnn.callbacks import TrainingProgress
    from pcnn.callbacks.warm_up import compile_shown
    from pcnn.console import Console
    from pcnn.experiment import networks
    from pcnn.kernels.sources_ahead import compile_sources_ahead

    began = time.perf_counter()
    device = torch.device("cuda", device.index or 0)
    networks.check_engine(cfg, device)
    torch.cuda.set_device(device)
    compile_sources_ahead(torch.cuda.get_device_capability(device)).wait()
    launches = launches_of_training(cfg, device, points)
    size = compile_shown(launches, device, TrainingProgress())
    Console().say(
        f"{counted(len(launches), 'variant')} of kernels, {size / 2**20:.1f} MiB, ready for "
        f"{torch.cuda.get_device_name(device)} after {time.perf_counter() - began:.1f} s"
    )


def launches_of_training(
    cfg: DictConfig, device: torch.device, points: Sequence[int]
) -> list[Launch]:
    """Variants of kernels that a training and its evaluation launch on batches of these sizes.

    Args:
        cfg: of `train.py`, checked.
        device: where it is to run.
        points: numbers of points of a batch.
    """
    from pcnn.experiment import build, networks
    from pcnn.runtime.launches import launches_of

    data: Any = build.data_module(cfg)
    channels = int(data.in_channels)
    classes = int(cfg.task.channels) if cfg.task.get("channels") else len(data.class_names)
    precision = str(cfg.trainer.precision)
    net = networks.network(cfg, channels, classes).to(device, dtype_of(precision))
    found: dict[Launch, None] = {}
    with autocast(precision, device):
        for number in points:
            for backward in (True, False):
                net.train(backward)
                x = surface(cfg, net, number, channels, float(data.voxel_size))
                found |= dict.fromkeys(launches_of(net, (x,), backward))
    return list(found)


def surface(
    cfg: DictConfig, net: torch.nn.Module, points: int, channels: int, cell: float
) -> SparseTensor:
    """A hilly sheet of random points, two on three cells, on the geometry of a configuration.

    Args:
        cfg: of `train.py`.
        net: the network that takes it.
        points: number of points P.
        channels: of the input.
        cell: edge of a cell of the finest level [m].

    Returns:
        Features ``[N, channels]`` of zeros.
    """
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

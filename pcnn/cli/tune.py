"""`pcnn tune`: choose dataflows for a network on samples of its data, and keep the choice."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.options import Device, chosen_device
from pcnn.cli.precision import autocast, dtype_of
from pcnn.plural import counted
from pcnn.ranges import Count

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig


def tune(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Options of train.py, such as model=minkunet dataset=kitti"),
    ] = None,
    samples: Annotated[Count, typer.Option(help="Batches to measure.")] = 5,
    backward: Annotated[bool, typer.Option(help="Choose dataflows for gradients, too.")] = False,
    precision: Annotated[
        str | None,
        typer.Option(help="32-true, 16-mixed, bf16-mixed, ... Default: trainer.precision."),
    ] = None,
    device: Device = "auto",
    cache: Annotated[
        Path | None, typer.Option(help="File that keeps the decisions. Default: the user's own.")
    ] = None,
    fresh: Annotated[bool, typer.Option(help="Measure again what the file already has.")] = False,
    conf: Annotated[Path, typer.Option(help="Folder of the configurations of train.py.")] = Path(
        "conf"
    ),
) -> None:
    """Find the quickest dataflow for every layer of a network, on samples of a data set.

    The decisions are kept in a file, which networks on this device read from then on. Give the
    options of the training, because dtype and batch size matter.
    """
    from pcnn.cli.composed import composed
    from pcnn.experiment.errors import short_errors

    where = chosen_device(device)
    with short_errors(conf):
        _tune(composed(overrides or [], conf), where, precision, samples, backward, cache, fresh)


def _tune(
    cfg: DictConfig,
    device: torch.device,
    precision: str | None,
    samples: int,
    backward: bool,
    cache: Path | None,
    fresh: bool,
) -> None:
    import torch

    from pcnn.console import Console
    from pcnn.dataflows.tuning_file import user_path
    from pcnn.experiment import build
    from pcnn.runtime.explaining import explain
    from pcnn.runtime.layer_calls import sparse_of
    from pcnn.runtime.tuning import tune

    build.check_engine(cfg, device)
    console = Console()
    precise = str(precision or cfg.trainer.get("precision", "32-true"))
    data: Any = build.data(cfg)
    loader = data.train_dataloader() if backward else data.val_dataloader()
    batches = list(islice(loader or data.train_dataloader(), samples))
    torch.manual_seed(cfg.seed)
    net = build.network(cfg, int(data.in_channels), len(data.class_names))
    net = net.to(device, dtype_of(precise))
    with autocast(precise, device):
        layers = tune(net, batches, samples, backward=backward, cache=cache, fresh=fresh)
        for layer in layers:
            console.say(layer)
        explain(net, sparse_of(batches[0]))
    known = sum(layer.known for layer in layers)
    chosen = sum(bool(layer.ms) for layer in layers)
    if not chosen:
        console.print(f"{device}: one dataflow serves all layers; there is nothing to choose")
        return
    where = cache or user_path()
    console.say(f"{counted(chosen, 'layer')} tuned, {known} of them by decisions on disk: {where}")
    if data.source_kind != "real":
        console.print("measured on SIMULATED data", style="bold yellow")

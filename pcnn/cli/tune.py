"""`pcnn tune`: choose dataflows for a network on samples of its data, and keep the choice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.composed import CONF, Conf, composed
from pcnn.cli.options import Device, chosen_device
from pcnn.cli.precision import autocast, dtype_of
from pcnn.plural import counted
from pcnn.ranges import Count

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from pcnn.runtime.tuning import TunedLayer


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
    out: Annotated[
        Path | None,
        typer.Option(help="File for a paper's engine: what engine.layers=FILE takes."),
    ] = None,
    conf: Conf = CONF,
) -> None:
    """Find the quickest dataflow for every layer of a network, on samples of a data set.

    The decisions are kept in a file, which networks on this device read from then on. Give the
    options of the training, because dtype and batch size matter. An engine that follows a paper
    (engine=minuet) keeps to that paper's settings, and --out keeps them for engine.layers=FILE.
    """
    from pcnn.experiment.short_errors import short_errors

    where = chosen_device(device)
    with short_errors(conf):
        cfg = composed(overrides or [], conf)
        if out is not None:
            _check_out(cfg)
        layers = _tune(cfg, where, precision, samples, backward, cache, fresh)
        if out is not None:
            _write(cfg, layers, out)


def _tune(
    cfg: DictConfig,
    device: torch.device,
    precision: str | None,
    samples: int,
    backward: bool,
    cache: Path | None,
    fresh: bool,
) -> list[TunedLayer]:
    import torch

    from pcnn.console import Console
    from pcnn.dataflows.tuning_file import user_path
    from pcnn.experiment import build, networks
    from pcnn.runtime.explaining import explain
    from pcnn.runtime.layer_calls import sparse_of
    from pcnn.runtime.tuning import tune

    networks.check_engine(cfg, device)
    console = Console()
    precise = str(precision or cfg.trainer.get("precision", "32-true"))
    data: Any = build.data(cfg)
    loader = data.train_dataloader() if backward else data.val_dataloader()
    batches = list(islice(loader or data.train_dataloader(), samples))
    torch.manual_seed(cfg.seed)
    net = networks.network(cfg, int(data.in_channels), len(data.class_names))
    net = net.to(device, dtype_of(precise))
    with autocast(precise, device):
        layers = tune(net, batches, samples, backward=backward, cache=cache, fresh=fresh)
        for layer in layers:
            console.say(layer)
        console.print(str(explain(net, sparse_of(batches[0]))), soft_wrap=True)
    known = sum(layer.known for layer in layers)
    chosen = sum(bool(layer.ms) for layer in layers)
    if not chosen:
        console.print(f"{device}: one dataflow serves all layers; there is nothing to choose")
        return layers
    where = cache or user_path()
    told = f"{known} of them by decisions on disk: {where}"
    if any(layer.settings is not None for layer in layers):
        told = "within the settings of its paper"
    console.say(f"{counted(chosen, 'layer')} tuned, {told}")
    if data.source_kind != "real":
        console.print("measured on SIMULATED data", style="bold yellow")
    return layers


def _write(cfg: DictConfig, layers: Sequence[TunedLayer], out: Path) -> None:
    """Settings of the layers that differ from the engine's, for ``engine.layers``."""
    from omegaconf import OmegaConf

    from pcnn.console import Console
    from pcnn.experiment.engine_choice import engine_of
    from pcnn.files.whole_file import whole_file
    from pcnn.ops.engine_settings import changed_settings

    usual = engine_of(cfg).settings
    assert usual is not None
    found = {one.name: one.settings for one in layers if one.settings is not None}
    changed = {name: changed_settings(settings, usual) for name, settings in found.items()}
    kept = {name: values for name, values in changed.items() if values}
    with whole_file(out) as file:
        file.write(OmegaConf.to_yaml(OmegaConf.create(kept)).encode())
    count = counted(len(kept), "layer")
    Console().say(f"{count} with settings of its own, for engine.layers={out}")


def _check_out(cfg: DictConfig) -> None:
    """Refuse to keep settings of an engine that has none, before minutes have passed."""
    from pcnn.errors import UserError
    from pcnn.experiment.engine_choice import engine_of

    if engine_of(cfg).settings is None:
        raise UserError(
            f"--out keeps settings of a paper's engine, and engine={cfg.engine.name} has none: its "
            "decisions are in the file that --cache names"
        )

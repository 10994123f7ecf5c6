"""`pcnn tune`: choose settings for the layers of a network on samples of its data."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.app import refusing
from pcnn.cli.options import Conf, Overrides, composed
from pcnn.experiment.options import Device
from pcnn.messages import counted, say
from pcnn.ranges import Count

if TYPE_CHECKING:
    import torch
    from omegaconf import DictConfig

    from pcnn.runtime.tuning import TunedLayer

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
    conf: Conf = None


def tune(options: TuneOptions) -> None:
    """Find the quickest settings for every layer of a network, on samples of a data set.

    The time of the whole network decides. Give the options of the training, because dtype and batch
    size matter. An engine that follows a paper (engine=minuet) keeps to that paper's settings.
    """
    from omegaconf import OmegaConf

    from pcnn.experiment.devices import device_of, precision_on
    from pcnn.experiment.networks import engine_of
    from pcnn.experiment.run_folder import write_whole
    from pcnn.programs.command_line import short_errors

    with refusing():
        where = device_of(options.device)
    with short_errors():
        cfg = composed(options.overrides, options.conf)
        own = precision_on(where, str(cfg.trainer.get("precision", "32-true")))
        precision = options.precision or own
        if options.out is not None and engine_of(cfg).settings is None:
            raise typer.BadParameter(
                f"--out keeps settings of layers, and engine={cfg.engine.name} has none"
            )
        layers = tuned(cfg, where, precision, options)
        if options.out is not None:
            kept = {one.name: one.settings.changed(one.before) for one in layers}
            write_whole(options.out, OmegaConf.to_yaml(OmegaConf.create(kept)))
            many = counted(len(kept), "layer")
            say(f"{many} with settings of its own, for engine.layers={options.out}")


def tuned(
    cfg: DictConfig, device: torch.device, precision: str, options: TuneOptions
) -> list[TunedLayer]:
    """Tune the network of a configuration, and print what was chosen."""
    import torch

    from pcnn.console import Console
    from pcnn.experiment import build, networks
    from pcnn.experiment.run import describe_data
    from pcnn.runtime.tuning import tune

    networks.check_engine(cfg, device)
    console, backward = Console(), options.backward
    data: Any = build.data(cfg)
    loader = data.train_dataloader() if backward else data.val_dataloader()
    batches = list(islice(loader or data.train_dataloader(), options.samples))
    torch.manual_seed(cfg.seed)
    task: Any = build.task(describe_data(cfg, data))
    dtype, context = in_precision(precision, device)
    net = task.net.to(device, dtype)
    with context:
        given = [x for batch in batches for x in task.inputs(batch)]  # both clouds of a pair
        layers = tune(net, given, options.samples, backward)
        for layer in layers:
            console.say(layer)
    told = counted(len(layers), "layer") if layers else "no layer"
    console.say(f"{device}: {told} quicker with settings of its own")
    if data.source_kind != "real":
        console.print("measured on SIMULATED data", style="bold yellow")
    return layers


def in_precision(
    precision: str, device: torch.device
) -> tuple[torch.dtype, AbstractContextManager[Any]]:
    """Dtype of the weights of a network of this precision of a trainer, and its autocast."""
    import torch

    dtype: torch.dtype = getattr(torch, PURE.get(precision, "float32"))
    if precision not in AUTOCAST:
        return dtype, nullcontext()
    return dtype, torch.autocast(device.type, getattr(torch, AUTOCAST[precision]))

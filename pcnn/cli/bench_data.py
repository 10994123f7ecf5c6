"""`pcnn bench data`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.bench_run import measure, stop_if_wrong
from pcnn.cli.bench_training import device_of, linked, unattended, workload_of
from pcnn.cli.composed import CONF, Conf, composed
from pcnn.ranges import Clouds, Count, Steps

if TYPE_CHECKING:
    import lightning as L
    from omegaconf import DictConfig

    from pcnn.bench.training import Training


def data(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Options of train.py, such as model=minkunet dataset.voxel_size=0.05"),
    ] = None,
    figure: Annotated[
        list[str] | None, typer.Option(help="stages or loop; may be repeated. Default: both.")
    ] = None,
    steps: Annotated[Steps, typer.Option(help="Training steps to measure.")] = 100,
    warm_up: Annotated[Count, typer.Option(help="Training steps before the measured ones.")] = 20,
    scans: Annotated[
        Clouds,
        typer.Option(
            help="Measure on this many links to the labelled scans of dataset.root (kitti); "
            "0: on the set as it is."
        ),
    ] = 0,
    conf: Conf = CONF,
    print_rows: Annotated[
        bool, typer.Option("--print/--no-print", help="Print all rows as tables.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Result file (JSON).")] = None,
) -> None:
    """Time the data path of a training: each stage of a sample, and how long steps wait for it.

    Give the options of the training. Before anything is timed, samples are compared with float64,
    and batches of the worker processes with those made in this process.
    """
    from pcnn.bench.data.figures import FIGURES
    from pcnn.bench.suite import chosen_figures
    from pcnn.experiment.short_errors import short_errors

    try:
        chosen = chosen_figures(figure or [], FIGURES)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    given = overrides or []
    with TemporaryDirectory(prefix="pcnn-bench-") as folder, short_errors(conf):
        cfg = composed(given, conf)
        if scans:
            linked(cfg, Path(folder), scans)
            given = [*given, f"links={scans}"]
        training = _training(cfg, given, steps, warm_up, Path(folder))
        training = replace(training, out=out, print_rows=print_rows)
        _, measured = measure("data", FIGURES, chosen, training)
    stop_if_wrong(measured)


def _training(
    cfg: DictConfig, overrides: list[str], steps: int, warm_up: int, folder: Path
) -> Training:
    from pcnn.bench.training import Training
    from pcnn.experiment import build
    from pcnn.experiment.run import describe_data, quieten

    if cfg.task.name != "segmentation":
        raise typer.BadParameter(f"task={cfg.task.name}: only task=segmentation can be measured")
    quieten()
    module: Any = build.data(cfg)
    described = describe_data(cfg, module)

    def trainer(callbacks: list[L.Callback], max_steps: int) -> L.Trainer:
        return build.trainer(unattended(described, max_steps), folder, callbacks, [])

    about: dict[str, Any] = {"source": str(module.source_kind), "geometry": str(cfg.geometry.name)}
    return Training(
        module=module,
        task=lambda: build.task(described),
        trainer=trainer,
        model=str(cfg.model.name),
        engine=str(cfg.engine.name),
        precision=str(cfg.trainer.get("precision", "32-true")),
        workload=workload_of(cfg, overrides),
        about=about,
        steps=steps,
        warm_up=warm_up,
        where=device_of(cfg),
    )

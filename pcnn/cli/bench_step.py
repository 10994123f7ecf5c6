"""`pcnn bench step`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.bench_run import console_of_width, measure, stop_if_wrong
from pcnn.cli.bench_training import device_of, linked, short_name, unattended
from pcnn.cli.composed import CONF, Conf, composed
from pcnn.ranges import Clouds, Count

if TYPE_CHECKING:
    import lightning as L
    from omegaconf import DictConfig

    from pcnn.bench.step.figures import TracedTraining


def step(
    overrides: Annotated[
        list[str],
        typer.Argument(help="An experiment of conf/experiment, then options of train.py."),
    ],
    steps: Annotated[
        Count | None,
        typer.Option(
            help="Steps to time; unless given, 8 times as many as batches that workers make ahead, "
            "30 at least: a loader that is too slow shows when those are used up."
        ),
    ] = None,
    warm_up: Annotated[
        Count, typer.Option(help="Steps before those: compilation, memory, graphs.")
    ] = 20,
    traced: Annotated[Count, typer.Option(help="Steps to look into, after the timed ones.")] = 3,
    most: Annotated[
        Count, typer.Option(help="Kernels, modules, functions and waits to name, of each.")
    ] = 20,
    scans: Annotated[
        Clouds,
        typer.Option(
            help="Train on this many links to the labelled scans of dataset.root (kitti); "
            "0: on the set as it is."
        ),
    ] = 0,
    conf: Conf = CONF,
    print_rows: Annotated[
        bool, typer.Option("--print/--no-print", help="Print tables of what was found.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Result file (JSON).")] = None,
) -> None:
    """Time the steps of a training, and look into some: what the device and the host do in them.

    Give the options of the training. It runs as `train.py` runs it, with its callbacks and a CSV
    logger unless one is given, and is not validated. On a CPU the columns of the device are empty.
    """
    from pcnn.bench.step.figures import FIGURES
    from pcnn.bench.step.tables import tables
    from pcnn.experiment.short_errors import short_errors

    first, *rest = overrides
    given = overrides if "=" in first else [f"experiment={first}", *rest]
    logged = any(word.startswith("logger=") for word in given)
    with TemporaryDirectory(prefix="pcnn-bench-") as folder, short_errors(conf):
        cfg = composed(given if logged else [*given, "logger=[csv]"], conf)
        if scans:
            linked(cfg, Path(folder), scans)
            given = [*given, f"links={scans}"]
        counts = steps, warm_up, traced, most
        training = _training(cfg, short_name(cfg, given), counts, Path(folder), out)
        header, measured = measure("step", FIGURES, FIGURES, training)
    if print_rows:
        for table in tables(header, measured):
            console_of_width().print(table)
    stop_if_wrong(measured)


def _training(
    cfg: DictConfig,
    workload: str,
    counts: tuple[int | None, int, int, int],
    folder: Path,
    out: Path | None,
) -> TracedTraining:
    import lightning as lightning_package

    from pcnn.bench.step.figures import TracedTraining
    from pcnn.datamodules.batch_stream import AHEAD
    from pcnn.experiment import build, networks
    from pcnn.experiment.class_weights import with_counted_weights
    from pcnn.experiment.devices import on_this_machine
    from pcnn.experiment.run import describe_data, quieten

    quieten()
    lightning_package.seed_everything(cfg.seed, workers=True, verbose=False)
    cfg, device, _ = on_this_machine(cfg, folder)
    networks.check_engine(cfg, device)
    module: Any = build.data(cfg)
    described = with_counted_weights(describe_data(cfg, module), module)
    known = {
        key: list(described.data[key]) for key in ("class_names", "colors") if key in described.data
    }
    given = {"run_folder": folder, "config": {}, "source": described.data.source, **known}

    def trainer(callbacks: list[L.Callback], max_steps: int) -> L.Trainer:
        run = unattended(described, max_steps)
        own = build.callbacks(run, folder, given)
        return build.trainer(run, folder, [*own, *callbacks], build.loggers(run, folder, given))

    about: dict[str, Any] = {
        "task": str(cfg.task.name),
        "source": str(module.source_kind),
        "geometry": str(cfg.geometry.name),
        "graph": str(bool(cfg.trainer.get("graph", False))).lower(),
    }
    steps, warm_up, traced, most = counts
    return TracedTraining(
        module=module,
        task=lambda: build.task(described),
        trainer=trainer,
        model=str(cfg.model.name),
        engine=str(cfg.engine.name),
        precision=str(cfg.trainer.get("precision", "32-true")),
        workload=workload,
        about=about,
        steps=steps or max(30, 8 * AHEAD * module.workers),
        warm_up=warm_up,
        traced=traced,
        most=most,
        where=device_of(cfg),
        out=out,
        print_rows=False,
    )

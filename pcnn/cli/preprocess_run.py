"""Running a preparation: progress, what was done, and what could not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from pcnn.cli.app import refusing
from pcnn.plural import counted

if TYPE_CHECKING:
    from pcnn.datasets import CloudSets
    from pcnn.datasets.preparation import Outcome, Preparation

#: What is said of a state, in this order.
WORDS = {
    "made": "made",
    "kept": "already there",
    "checked": "read without problems",
    "failed": "not done",
}


def fill_caches(
    sets: Callable[[], CloudSets],
    settings: Mapping[str, Any],
    geometry: str,
    check: bool,
    workers: int | None,
    progress: bool,
) -> None:
    """Fill the cache that a training with these settings uses.

    Args:
        sets: makes the data set and its splits.
        settings: further arguments of the data module.
        geometry: ``voxel`` or ``point``.
        check: read the clouds of validation too.
        workers: processes; None takes every core.
        progress: show progress.

    Raises:
        typer.BadParameter: settings or a set that no training would take.
        typer.Exit: something could not be done, and was named.
    """
    from pcnn.datamodules import CloudDataModule
    from pcnn.datasets import OnPoints, OnVoxels
    from pcnn.datasets.cloud_dataset import CloudDataset
    from pcnn.datasets.preparation import FillCache, ReadAll

    if geometry not in ("voxel", "point"):
        raise typer.BadParameter(f"--geometry {geometry}: must be voxel or point")
    placement = OnVoxels() if geometry == "voxel" else OnPoints()
    with refusing():
        data = CloudDataModule(sets(), cache=True, geometry=placement, **settings)
        data.prepare_data()
        train = data.build("train")
        val = data.build("val") if check else None
    work: list[Preparation] = [FillCache(train)] if isinstance(train, CloudDataset) else []
    work += [ReadAll(val)] if isinstance(val, CloudDataset) else []
    if not do_all(work, "cloud", workers, progress):
        raise typer.Exit(1)


def do_all(work: Sequence[Preparation], unit: str, workers: int | None, progress: bool) -> bool:
    """Do all work, then say what was done and name what could not be.

    Returns:
        Whether everything could be done.

    Raises:
        typer.Exit: the disk is full, or a process died.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from pcnn.console import Console
    from pcnn.datasets.preparation import prepared

    console = Console()
    outcomes: list[Outcome] = []
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results = iter(prepared(work, workers))
    stopped = ""
    total = sum(map(len, work))
    with Progress(*columns, console=console, disable=not progress) as bar:
        task = bar.add_task(f"{unit}s", total=total)
        try:
            for outcome in results:
                outcomes.append(outcome)
                bar.advance(task)
        except (OSError, RuntimeError) as error:
            stopped = str(error).splitlines()[-1]
    counts = Counter(str(outcome.state) for outcome in outcomes)
    said = [f"{counts[state]} {words}" for state, words in WORDS.items() if counts[state]]
    console.print(f"{counted(total, unit)}: {', '.join(said) or 'nothing done'}", highlight=False)
    for outcome in outcomes:
        for note in outcome.notes:
            console.say(note, "note", "yellow")
    failed = [outcome.problem for outcome in outcomes if outcome.state == "failed"]
    for problem in failed:
        console.say(problem, "not done", "red")
    if stopped:
        console.say(
            f"{stopped}\nwhat was done is kept; the same command continues "
            "with the rest (for less memory: --workers with a smaller number)",
            "stopped",
            "red",
        )
        raise typer.Exit(1)
    return not failed

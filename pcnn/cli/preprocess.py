"""`pcnn preprocess`: fill the cache of a training ahead of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.cli.options import Conf, Overrides, Progress, composed
from pcnn.messages import counted
from pcnn.ranges import Workers

if TYPE_CHECKING:
    from pcnn.datamodules import CloudDataModule
    from pcnn.datasets.preparation import Outcome, Preparation

#: Words for a state, in the order of the report.
WORDS = {
    "made": "made",
    "kept": "already there",
    "checked": "read without problems",
    "failed": "not done",
}


@dataclass(frozen=True, kw_only=True)
class PreprocessOptions:
    overrides: Overrides
    check: Annotated[bool, "Read the clouds of the validation too."] = True
    workers: Annotated[Workers | None, "Processes; every core unless given; 0: this alone."] = None
    shards: Annotated[Path | None, "Folder to write few large files to: dataset.shards."] = None
    progress: Progress = True
    conf: Conf = None


def preprocess(options: PreprocessOptions) -> None:
    """Fill the cache of a training ahead of time, and find broken files before it does.

    Give the options of the training. A run may be stopped at any time; the next one keeps what is
    there. Files that cannot be read are named, the others are done, and the exit code is 1.
    """
    from pcnn.datasets.preparation import Preparation
    from pcnn.programs.command_line import short_errors

    with short_errors():
        data = clouds_of(options)
    with refusing():
        data.prepare_data()
        train = data.dataset("train")
        val = data.dataset("val") if options.check else None
    work = Preparation(train, val)
    try:
        do_all(work, options)
    finally:
        if options.shards is not None:
            pack(data, options.shards, options.progress)


def pack(data: CloudDataModule, folder: Path, shown: bool) -> None:
    """Write the clouds of training and validation as shards."""
    from pcnn.console import Console, progress
    from pcnn.datasets.cache import write_shards

    console, facts = Console(), {"kind": data.source_kind, "classes": data.class_names}
    for split in ("train", "val"):
        dataset = data.dataset(split)
        if dataset is not None:
            with progress(console, split, len(dataset), shown) as advance:
                number = write_shards(dataset, folder / split, facts, advance)
            console.say(f"{folder / split}: {counted(number, 'cloud')}")


def clouds_of(options: PreprocessOptions) -> CloudDataModule:
    """The data module of a configuration, with a cache."""
    from pcnn.datamodules import CloudDataModule
    from pcnn.experiment.run_config import data_module

    cfg = composed(options.overrides, options.conf)
    if cfg.dataset.get("cache") is False:
        cfg = composed([*options.overrides, "dataset.cache=true"], options.conf)
    data = data_module(cfg)
    if not isinstance(data, CloudDataModule):
        raise typer.BadParameter(f"dataset={cfg.dataset.name} task={cfg.task.name} has no cache")
    return data


def do_all(work: Preparation, options: PreprocessOptions) -> None:
    """Do all work, then say what was done and name what could not be."""
    from pcnn.console import Console, progress

    console = Console()
    outcomes: list[Outcome] = []
    stopped, total = "", len(work)
    with progress(console, "clouds", total, options.progress) as advance:
        try:
            for outcome in work.done(options.workers):
                outcomes.append(outcome)
                advance()
        except (OSError, RuntimeError) as error:
            stopped = str(error).splitlines()[-1]
    counts = Counter(str(outcome.state) for outcome in outcomes)
    said = [f"{counts[state]} {words}" for state, words in WORDS.items() if counts[state]]
    console.say(f"{counted(total, 'cloud')}: {', '.join(said) or 'nothing done'}")
    for outcome in sorted(outcomes, key=lambda one: one.state == "failed"):
        kind = ("not done", "red") if outcome.state == "failed" else ("note", "yellow")
        if outcome.text:
            console.say(outcome.text, *kind)
    if stopped:
        console.say(f"{stopped}\nthe same command does the rest", "stopped", "red")
    if stopped or counts["failed"]:
        raise typer.Exit(1)

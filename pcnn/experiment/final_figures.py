"""The tables that a run prints at its end: classes, and the best and the last state side by side.

The best state was chosen by the figures of the validation, so the figures it has there are higher
than those it would have elsewhere. The last state was not chosen: its figures stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning as L
from omegaconf import DictConfig
from rich.table import Table
from torch import Tensor, nn

from pcnn.console import Console
from pcnn.messages import program
from pcnn.metrics import accuracy, class_accuracy, iou_table, mean_class_accuracy


@dataclass(frozen=True)
class LastState:
    """The last state of a training."""

    checkpoint: str  # its file
    steps: int  # optimiser steps behind it
    metrics: dict[str, float]  # its figures, by the names that those of the best state have


def last_state(
    trainer: L.Trainer,
    steps: int,
    evaluate: Callable[[str, str], dict[str, float]],
    views: bool,
    test: bool,
) -> LastState | None:
    """Figures of `last.ckpt`; None where it holds the state that is evaluated in any case.

    The last state is validated at the end of a training: it is evaluated here only where that did
    not happen.
    """
    kept: Any = trainer.checkpoint_callback
    path = getattr(kept, "last_model_path", "")
    if not path or steps == trainer.global_step:
        return None
    loggers, trainer.loggers = trainer.loggers, []  # under this step they are told of the best one
    try:
        if not views and getattr(kept, "validated_step", None) == trainer.global_step:
            metrics = {name: float(value) for name, value in kept.figures.items()}
        else:
            metrics = evaluate(path, "val")
        if test:
            metrics |= evaluate(path, "test")
    finally:
        trainer.loggers = loggers
    return LastState(path, trainer.global_step, metrics)


def facts_of(chosen: bool, tests_on_validation: bool, last: LastState | None) -> dict[str, Any]:
    """Entries of metrics.json that say what the figures of the best state are."""
    facts: dict[str, Any] = {
        "best_on_validation": chosen,
        "test_split": "validation" if tests_on_validation else "own",
    }
    if last is not None:
        facts["last"] = asdict(last)
    return facts


def say_states(console: Console, steps: int, metrics: Mapping[str, float], last: LastState) -> None:
    """Print the figures of both states side by side, without those of single classes."""
    table = Table(title="Figures of both states", title_justify="left")
    table.add_column("")
    table.add_column(f"best on validation\nbest.ckpt, step {steps}", justify="right")
    table.add_column(f"last\nlast.ckpt, step {last.steps}", justify="right")
    for name, value in metrics.items():
        if name in last.metrics and name.replace("/tta", "").count("/") == 1:
            table.add_row(name, f"{value:.4f}", f"{last.metrics[name]:.4f}")
    console.print(table)


def say_chosen(console: Console, checkpoint: str) -> None:
    """Print that the tested state was chosen on the very clouds that test it."""
    console.say(f"{checkpoint} was chosen on these clouds: its figures are the best on validation.")
    last = Path(checkpoint).with_name("last.ckpt")
    if last.is_file() and last != Path(checkpoint):
        console.say(f"the last state: {program('eval')} ckpt_path={last}")


def say_tables(
    console: Console,
    cfg: DictConfig,
    task: nn.Module,
    chosen: bool = False,
    tests_on_validation: bool = False,
) -> None:
    """Print the last evaluation class by class: a single pass, then the sum of the views if any."""
    confusion: dict[str, Tensor] = getattr(task, "confusion", {})
    for split in ("test", "val"):
        if split not in confusion:
            continue
        where = f"{cfg.dataset.name} {split}"
        if chosen and (split == "val" or tests_on_validation):
            where += ", best on validation"
        where += "" if cfg.data.source == "real" else ", SIMULATED data"
        names = list(cfg.data.class_names)
        whole = cfg.task.name == "classification"
        table, figure = (accuracy_table, "Accuracy") if whole else (iou_table, "IoU per class")
        voted = confusion.get(f"{split}/tta")
        passes = "" if voted is None else ", single pass"
        console.print(table(confusion[split].cpu(), names, f"{figure}, {where}{passes}"))
        if voted is not None:
            title = f"{figure}, {where}, sum of views (tta={cfg.tta.name})"
            console.print(table(voted.cpu(), names, title))
        return
    if cfg.test and getattr(task, "confusion", None) is not None:
        console.print("no labelled cloud was tested, so there are no figures")


def accuracy_table(counts: Tensor, class_names: list[str], title: str) -> Table:
    """The share of right answers, class by class."""
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("class", footer="all\nmean of classes")
    overall, mean = float(accuracy(counts)), float(mean_class_accuracy(counts))
    table.add_column("right %", justify="right", footer=f"{100 * overall:.2f}\n{100 * mean:.2f}")
    table.add_column("clouds", justify="right", footer=f"{int(counts.sum()):,}")
    table.add_column("answered", justify="right")
    answered = counts[:, : counts.shape[0]].sum(0).tolist()
    for name, share, clouds, times in zip(
        class_names, class_accuracy(counts).tolist(), counts.sum(1).tolist(), answered, strict=True
    ):
        here = clouds > 0
        table.add_row(
            name,
            f"{100 * share:.2f}" if here else "absent",
            f"{clouds:,}",
            f"{times:,}",
            style=None if here else "dim",
        )
    return table

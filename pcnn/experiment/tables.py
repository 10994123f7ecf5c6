"""The tables that a run prints at its end, for tasks that count classes."""

from __future__ import annotations

from omegaconf import DictConfig
from rich.table import Table
from torch import Tensor, nn

from pcnn.console import Console
from pcnn.metrics import accuracy, class_accuracy, iou_table, mean_class_accuracy


def say_tables(
    console: Console,
    cfg: DictConfig,
    task: nn.Module,
    chosen: bool = False,
    tests_on_validation: bool = False,
) -> None:
    """Print the last evaluation class by class: a single pass, then the sum of the views if any.

    Args:
        console: where to.
        cfg: configuration of the run.
        task: with the counts of its last evaluation.
        chosen: whether the weights are the best ones on validation.
        tests_on_validation: whether the test reads what validates.
    """
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
    """The share of right answers, class by class.

    Args:
        counts: [C, C + 1] confusion counts of whole clouds.
        class_names: C names.
        title: heading.
    """
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

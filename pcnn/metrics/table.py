"""The per-class IoU table that an evaluation prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from torch import Tensor

from pcnn.metrics.iou import accuracy, best_constant, iou, miou_official, miou_present, present

BAR = 16  # characters of a full bar


def iou_table(counts: Tensor, class_names: Sequence[str], title: str = "IoU per class") -> Table:
    """Build a table with IoU, labelled points and predicted points of every class.

    Classes absent from the truth are dimmed: their 0 is part of the official mean, not of the mean
    over the classes present.

    Args:
        counts: [C, C + 1] or [C, C] integer confusion counts.
        class_names: C names.
        title: heading; say here when the data is simulated.

    Returns:
        A `rich.table.Table`; print it with ``rich.print(table)``.

    Raises:
        ValueError: the number of names is not C.
    """
    if len(class_names) != counts.shape[0]:
        raise ValueError(f"{len(class_names)} class names for {counts.shape[0]} classes")
    scores = iou(counts).tolist()
    here = present(counts).tolist()
    truth = counts.sum(1).tolist()
    predicted = counts[:, : counts.shape[0]].sum(0).tolist()

    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("class", footer="mean, official\nmean, present")
    official, over_present = float(miou_official(counts)), float(miou_present(counts))
    table.add_column(
        "IoU %", justify="right", footer=f"{100 * official:.2f}\n{100 * over_present:.2f}"
    )
    table.add_column("", footer=f"accuracy {100 * float(accuracy(counts)):.2f} %", min_width=BAR)
    table.add_column("points", justify="right", footer=f"{sum(truth):,}")
    table.add_column(
        "predicted",
        justify="right",
        footer=f"one class for all {100 * float(best_constant(counts)):.2f}",
    )
    for name, score, is_here, true_points, pred_points in zip(
        class_names, scores, here, truth, predicted, strict=True
    ):
        table.add_row(
            name,
            f"{100 * score:.2f}" if is_here else "absent",
            "█" * round(BAR * score),
            f"{true_points:,}",
            f"{pred_points:,}",
            style=None if is_here else "dim",
        )
    return table

"""The picture of a segmented scan: prediction beside truth, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.metrics.iou import accuracy, iou, miou_present, present
from pcnn.visualize.page import FAINT, INK, from_above, new_page, saved
from pcnn.visualize.palette import RIGHT, UNJUDGED, UNLABELLED, WRONG, colourise, distinct_colours

PIXELS = 1000
#: Edge of a panel [inches], and columns of the legend below one.
SIDE, COLUMNS = 6.0, 3
#: Sides of the square of a point from above [pixels]: of dense clouds, and of the sparsest.
DOTS = (3, 9)
#: Share of the pixels that the squares of all points would cover, side by side.
COVER = 0.35
#: Not drawn from above: it would hide all that stands in a room.
OVERHEAD = "ceiling"
#: Words that stand large beside the title, by source.
LARGE = {
    "simulated": "SIMULATED DATA",
    "simulated training": "network of SIMULATED data",
}


def segmentation_picture(
    points: NDArray[np.floating],  # [P, 3] [m], in the sensor's frame (x ahead, y left, z up)
    labels_true: NDArray[np.integer] | None,  # [P] class ids or ignore_index
    labels_pred: NDArray[np.integer],  # [P] class ids
    class_names: Sequence[str],
    colors: NDArray[np.uint8] | Sequence[Sequence[int]] | None,
    path: str | Path,
    title: str = "",
    *,
    source: Literal["real", "simulated", "simulated training"] | None = None,
    extent: float | None = None,
    ignore_index: int = 255,
) -> Path:
    """Draw truth, prediction and errors of a scan from above, as a PNG.

    A cross marks the sensor, or the middle of a cloud that does not lie around its origin. Above
    the panels stand title, source and mIoU over the classes present in this scan; below them every
    class that occurs, with its IoU in this scan. Points of sparse clouds are drawn larger. Without
    a truth only the prediction is drawn. From above the points of a class `ceiling` are left out,
    by the truth where there is one. Needs no display, and leaves no global state.
    """
    points = np.asarray(points, dtype=np.float64)
    pred = np.asarray(labels_pred).astype(np.int64)
    truth = None if labels_true is None else np.asarray(labels_true).astype(np.int64)
    for name, labels in (("labels_pred", pred), ("labels_true", truth)):
        if labels is not None and labels.shape != points.shape[:1]:
            raise ValueError(
                f"{name} must be [{len(points)}], one for every point, got {labels.shape}"
            )
    own = distinct_colours(len(class_names)) if colors is None else colors
    table = np.asarray(own).astype(np.uint8)
    if table.shape != (len(class_names), 3):
        raise ValueError(f"colors must be [{len(class_names)}, 3], got {table.shape}")

    panels = [("prediction", colourise(pred, table))]
    counts = None
    if truth is not None:
        from pcnn.metrics.confusion import ConfusionMatrix  # torchmetrics imports matplotlib

        confusion = ConfusionMatrix(len(class_names), ignore_index)
        confusion.update(torch.from_numpy(pred), torch.from_numpy(truth))
        counts = confusion.compute()
        labelled = truth != ignore_index
        errors = np.where((pred == truth)[:, None], RIGHT, WRONG).astype(np.uint8)
        errors[~labelled] = UNJUDGED
        share = float(((pred != truth) & labelled).sum() / max(labelled.sum(), 1))
        panels.insert(0, ("truth", colourise(truth, table)))
        panels.append((f"errors: {100 * share:.1f} % of labelled points", errors))

    points = points - _centre(points)
    if extent is None:
        reach = np.abs(points[:, :2]).max(1) if len(points) else np.ones(1)
        extent = float(max(np.quantile(reach, 0.98), 1.0))
    below = _below_ceiling(class_names, pred if truth is None else truth)
    entries = _entries(class_names, table, counts, pred, truth, ignore_index)
    across = COLUMNS * len(panels)  # of the legend
    foot = 0.9 + 0.28 * -(-len(entries) // across)  # [inches]
    figure = new_page(SIDE * len(panels), 1.3 + SIDE + foot)
    figure.subplots_adjust(0.07, foot / (1.3 + SIDE + foot), 0.98, 1 - 1.5 / (1.3 + SIDE + foot))
    dot = int(np.clip(np.sqrt(COVER * PIXELS**2 / max(len(points), 1)), *DOTS))
    for column, (name, rgb) in enumerate(panels, 1):
        place = figure.add_subplot(1, len(panels), column)
        image = from_above(points[below], rgb[below], extent, PIXELS, dot)
        place.imshow(image, extent=(-extent, extent, -extent, extent))
        place.set_title(name, loc="left", fontsize=15, color=INK)
        place.plot([0], [0], marker="+", markersize=11, markeredgewidth=1.6, color=INK)
        place.tick_params(labelsize=8, colors=FAINT)
    _heading(figure, title, source, counts, len(points))
    _legend(figure, entries, across, "metres; classes" + ("" if counts is None else ", IoU in %"))
    return saved(figure, path)


def _centre(points: NDArray[np.floating]) -> NDArray[np.floating]:
    """Where the picture is centred: the sensor if the cloud lies around it, else the middle."""
    # a room or a map has its origin in a corner or far away
    if len(points) == 0:
        return np.zeros(3)
    low, high = points.min(0), points.max(0)
    middle = (low + high) / 2
    around = np.all(np.abs(middle[:2]) <= (high - low)[:2] / 4)
    return np.zeros(3) if around else middle


def _below_ceiling(class_names: Sequence[str], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which points are no ceiling, [P]."""
    overhead = [number for number, name in enumerate(class_names) if name == OVERHEAD]
    return ~np.isin(labels, overhead)


def _heading(figure: Any, title: str, source: str | None, counts: Any, size: int) -> None:
    """Write title, figures and source."""
    inch = 1 / figure.get_figheight()
    words = {"fontsize": 20, "color": INK, "weight": "bold"}
    figure.text(0.02, 1 - 0.45 * inch, title or "segmentation", **words)
    facts = [f"{size:,} points"]
    if counts is not None:
        facts.insert(0, f"mIoU {100 * float(miou_present(counts)):.1f} over the classes present")
        facts.insert(1, f"accuracy {100 * float(accuracy(counts)):.1f} %")
    figure.text(0.02, 1 - 0.85 * inch, "   ·   ".join(facts), fontsize=14, color=FAINT)
    if source is not None:
        sign = {"boxstyle": "round,pad=0.35", "facecolor": "#c2410c", "edgecolor": "none"}
        large = {"weight": "bold", "color": "white", "bbox": sign}
        style = large if source in LARGE else {"color": FAINT}
        said = LARGE.get(source, f"{source} data")
        figure.text(0.97, 1 - 0.85 * inch, said, fontsize=13, ha="right", **style)


def _entries(
    class_names: Sequence[str],
    table: NDArray[np.uint8],
    counts: Any,
    pred: NDArray[np.int64],
    truth: NDArray[np.int64] | None,
    ignore_index: int,
) -> list[tuple[str, tuple[float, ...]]]:
    """Return text and colour of every class that occurs in truth or prediction."""
    here = [False] * len(class_names) if counts is None else present(counts).tolist()
    scores = None if counts is None else iou(counts).tolist()
    entries = []
    for index, name in enumerate(class_names):
        if not (here[index] or (pred == index).any()):
            continue
        if scores is not None:
            name += f"  {100 * scores[index]:.0f}" if here[index] else "  (none true)"
        entries.append((name, tuple((table[index] / 255.0).tolist())))
    if any((one == ignore_index).any() for one in (pred, truth) if one is not None):
        entries.append(("unlabelled", tuple(channel / 255.0 for channel in UNLABELLED)))
    return entries


def _legend(
    figure: Any, entries: list[tuple[str, tuple[float, ...]]], columns: int, title: str
) -> None:
    from matplotlib.patches import Patch

    patches: list[Any] = [
        Patch(facecolor=colour, edgecolor="#9aa3af", label=label)  # type: ignore[arg-type]
        for label, colour in entries
    ]
    # matplotlib fills column by column; people read row by row
    patches = [one for first in range(columns) for one in patches[first::columns]]
    style = {"frameon": False, "fontsize": 12, "title_fontsize": 12, "labelcolor": INK}
    place = {"loc": "lower left", "ncols": columns, "alignment": "left"}
    figure.legend(handles=patches, title=title, **place, **style)

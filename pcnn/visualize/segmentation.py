"""The picture of a segmented scan: prediction beside truth, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.metrics.iou import accuracy, iou, miou_present, present
from pcnn.visualize.page import FAINT, INK, new_page, saved
from pcnn.visualize.palette import RIGHT, UNJUDGED, UNLABELLED, WRONG, colourise, palette
from pcnn.visualize.raster import from_above, from_sensor

PIXELS = 1000
STRIP = (128, 1800)
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
    """Draw truth, prediction and errors of a scan from above and from the sensor, as a PNG.

    A cross marks the sensor, or the middle of a cloud that does not lie around its origin. Above
    the panels stand title, source and mIoU over the classes present in this scan; below them every
    class that occurs, with its IoU in this scan. Points of sparse clouds are drawn larger. Without
    a truth only the prediction is drawn. From above the points of a class `ceiling` are left out,
    by the truth where there is one; the strip all around shows them. Uses matplotlib's object
    interface: no display and no global state.
    """
    points = np.asarray(points, dtype=np.float64)
    pred = np.asarray(labels_pred).astype(np.int64)
    truth = None if labels_true is None else np.asarray(labels_true).astype(np.int64)
    for name, labels in (("labels_pred", pred), ("labels_true", truth)):
        if labels is not None and labels.shape != points.shape[:1]:
            raise ValueError(
                f"{name} must be [{len(points)}], one for every point, got {labels.shape}"
            )
    table = palette(class_names) if colors is None else np.asarray(colors).astype(np.uint8)
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
    page = _Page(len(panels), [label for label, _ in entries])
    _draw(page, points, below, panels, extent)
    _heading(page, title, source, counts, len(points))
    _legend(page, entries, "classes in this scan" + ("" if counts is None else ", IoU in %"))

    return saved(page.figure, path)


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


class _Page:
    """A figure laid out in inches: heading, one column a panel, legend."""

    SIDE, STRIP_HEIGHT, GAP, MARGIN = 6.0, 0.86, 0.14, 0.25
    HEAD, STRIP_FOOT, LEGEND_TITLE, LEGEND_ROW, LETTER = 1.28, 0.28, 0.45, 0.275, 0.098

    def __init__(self, columns: int, labels: list[str]) -> None:
        self.columns = columns
        self.width = 2 * self.MARGIN + columns * self.SIDE + (columns - 1) * self.GAP
        # patch, gap and space to the next column beside the letters
        column = 0.65 + self.LETTER * max(map(len, labels), default=0)
        self.legend_columns = max(int(self.width // column), 1)
        rows = -(-len(labels) // self.legend_columns)
        self.foot = self.STRIP_FOOT + self.LEGEND_TITLE + rows * self.LEGEND_ROW + self.MARGIN
        self.height = self.HEAD + self.SIDE + self.GAP + self.STRIP_HEIGHT + self.foot
        self.figure = new_page(self.width, self.height)

    def axes(self, column: int, strip: bool) -> Any:
        """Add the square of a column, or the strip under it."""
        left = self.MARGIN + column * (self.SIDE + self.GAP)
        low = self.foot if strip else self.foot + self.STRIP_HEIGHT + self.GAP
        tall = self.STRIP_HEIGHT if strip else self.SIDE
        axes = self.figure.add_axes(
            (left / self.width, low / self.height, self.SIDE / self.width, tall / self.height)
        )
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set(color="#d5d9df", linewidth=1.0)
        return axes

    def text(self, left: float, down: float, text: str, **style: Any) -> Any:
        """Write at a place given in inches from the upper left corner (or right, if negative)."""
        x = (left if left >= 0 else self.width + left) / self.width
        return self.figure.text(x, 1 - down / self.height, text, **style)


def _draw(
    page: _Page,
    points: NDArray[np.floating],
    below: NDArray[np.bool_],  # [P], which points are drawn from above
    panels: list[tuple[str, NDArray[np.uint8]]],  # names, colours of the points
    extent: float,  # half the side of the square [m]
) -> None:
    """Fill one column a panel: a square from above, a strip all around under it."""
    dot = int(np.clip(np.sqrt(COVER * PIXELS**2 / max(len(points), 1)), *DOTS))
    for column, (name, rgb) in enumerate(panels):
        above = page.axes(column, strip=False)
        above.imshow(
            from_above(points[below], rgb[below], extent, PIXELS, dot),
            extent=(-extent, extent, -extent, extent),
            interpolation="antialiased",
        )
        above.set_title(name, loc="left", fontsize=15, color=INK, pad=6)
        above.plot([0], [0], marker="+", markersize=11, markeredgewidth=1.6, color=INK)
        if column == 0:
            _scale(above, extent)
        around = page.axes(column, strip=True)
        around.imshow(from_sensor(points, rgb, STRIP, dot=(dot, dot - 1)), aspect="auto")
        words = {"fontsize": 11, "color": FAINT, "labelpad": 3}
        around.set_xlabel("all around, seen from +", loc="left", **words)


def _scale(axes: Any, extent: float) -> None:
    """Draw a bar of a round length into the lower left corner."""
    from matplotlib.patches import Rectangle

    lengths = [m * 10.0**e for e in range(-2, 4) for m in (1, 2, 5)]
    length = max((v for v in lengths if v <= 0.45 * extent), default=extent)
    left, low = -0.94 * extent, -0.93 * extent
    # on a plate of their own: points lie in the corner, too
    axes.add_patch(
        Rectangle(
            (left - 0.03 * extent, low - 0.035 * extent),
            max(length, 0.17 * extent) + 0.06 * extent,
            0.135 * extent,
            facecolor="white",
            edgecolor="#d5d9df",
            alpha=0.92,
        )
    )
    axes.plot([left, left + length], [low, low], color=INK, linewidth=3, solid_capstyle="butt")
    axes.text(left, low + 0.03 * extent, f"{length:g} m", fontsize=12, color=INK)


def _heading(page: _Page, title: str, source: str | None, counts: Any, size: int) -> None:
    """Write title, figures and source."""
    page.text(page.MARGIN, 0.45, title or "segmentation", fontsize=20, color=INK, weight="bold")
    facts = [f"{size:,} points"]
    if counts is not None:
        facts.insert(0, f"mIoU {100 * float(miou_present(counts)):.1f} over the classes present")
        facts.insert(1, f"accuracy {100 * float(accuracy(counts)):.1f} %")
    page.text(page.MARGIN, 0.78, "   ·   ".join(facts), fontsize=14, color=FAINT)
    down = 0.45 if page.columns > 1 else 0.78  # one column is too narrow for a title beside it
    if source in LARGE:
        page.text(
            -page.MARGIN - 0.08,
            down,
            LARGE[source],
            fontsize=16 if source == "simulated" else 13,
            ha="right",
            weight="bold",
            color="white",
            bbox={"boxstyle": "round,pad=0.35", "facecolor": "#c2410c", "edgecolor": "none"},
        )
    elif source is not None:
        page.text(-page.MARGIN, down, f"{source} data", fontsize=16, ha="right", color=FAINT)


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


def _legend(page: _Page, entries: list[tuple[str, tuple[float, ...]]], title: str) -> None:
    from matplotlib.patches import Patch

    patches: list[Any] = [
        Patch(facecolor=colour, edgecolor="#9aa3af", label=label)  # type: ignore[arg-type]
        for label, colour in entries
    ]
    # matplotlib fills column by column; people read row by row
    columns = page.legend_columns
    patches = [one for first in range(columns) for one in patches[first::columns]]
    below = page.foot - page.STRIP_FOOT - 0.06  # [inches]
    legend = page.figure.legend(
        handles=patches,
        loc="upper left",
        bbox_to_anchor=((page.MARGIN - 0.1) / page.width, below / page.height),
        ncols=columns,
        frameon=False,
        fontsize=12.5,
        labelcolor=INK,
        handlelength=1.3,
        handleheight=1.1,
        columnspacing=1.5,
        labelspacing=0.45,
        title=title,
        title_fontsize=12.5,
        alignment="left",
    )
    legend.get_title().set_color(FAINT)

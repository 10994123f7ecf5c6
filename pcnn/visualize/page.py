"""Clouds from above, and figures of matplotlib without a display or global state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.files.whole_file import whole_file

INK, FAINT = "#1c2430", "#6b7482"  # text, and text of less weight


def new_page(width: float, height: float, **options: Any) -> Any:
    """A white `matplotlib.figure.Figure` of a size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", **options)
    FigureCanvasAgg(figure)
    return figure


def saved(figure: Any, path: str | Path) -> Path:
    """Write a figure as a PNG, whole, its folder too."""
    path = Path(path)
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=100)
    return path


def from_above(
    points: NDArray[np.floating], rgb: NDArray[np.uint8], extent: float, pixels: int, dot: int = 1
) -> NDArray[np.uint8]:
    """Draw a cloud in orthographic projection along -z, the highest point of a pixel on top.

    The image's right is +x (ahead of a driving sensor), its top is +y (left of it).
    """
    column = np.floor((points[:, 0] + extent) / (2 * extent) * pixels).astype(np.int64)
    row = np.floor((extent - points[:, 1]) / (2 * extent) * pixels).astype(np.int64)
    image = np.full((pixels, pixels, 3), 255, np.uint8)
    order = np.argsort(points[:, 2], kind="stable")
    row, column, rgb = row[order], column[order], rgb[order]
    # all offsets of a point go in together, else a low point would cover a high one's border
    across = np.arange(dot) - dot // 2
    rows = (row[:, None] + across).repeat(dot, 1)  # [P, dot * dot]
    columns = np.tile(column[:, None] + across, (1, dot))
    colours = np.broadcast_to(rgb[:, None], (*rows.shape, 3))
    inside = (rows >= 0) & (rows < pixels) & (columns >= 0) & (columns < pixels)
    image[rows[inside], columns[inside]] = colours[inside]
    return image

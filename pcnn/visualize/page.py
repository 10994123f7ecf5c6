"""Figures of matplotlib without a display or global state, written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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

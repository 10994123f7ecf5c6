"""Figures of matplotlib without a display or global state, written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcnn.files.whole_file import whole_file

INK, FAINT = "#1c2430", "#6b7482"  # text, and text of less weight
FORMATS = ("png", "svg")


def new_page(width: float, height: float, **options: Any) -> Any:
    """A white `matplotlib.figure.Figure` of a size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", **options)
    FigureCanvasAgg(figure)
    return figure


def checked_format(path: Path) -> str:
    """The format that the name of a picture asks for, one of `FORMATS`."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise ValueError(f"{path}: a chart is written as .png or .svg")
    return suffix


def saved(figure: Any, path: str | Path, kind: str = "png", dpi: int = 100) -> Path:
    """Write a figure whole, its folder too; the same figure gives the same SVG."""
    from matplotlib import rc_context

    path = Path(path)
    with rc_context({"svg.hashsalt": "pcnn"}), whole_file(path) as file:
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=dpi, metadata=metadata)
    return path

"""A reliability diagram: what confidence says against how often it is right."""

from __future__ import annotations

from pathlib import Path

from pcnn.metrics.calibration import Reliability
from pcnn.visualize.page import FAINT, INK, new_page, saved


def reliability_picture(found: Reliability, path: str | Path, title: str) -> Path:
    """Draw the share of right poses over the confidence, and how many pairs every bin holds."""
    figure = new_page(6.5, 7.5)
    above, below = figure.subplots(2, 1, height_ratios=(4, 1), sharex=True)
    above.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="--")
    above.plot(found.confidence, found.right, color=INK, marker="o")
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel="share of right poses")
    above.set_title(f"{title}\nexpected calibration error {found.error:.3f}", loc="left")
    below.bar(found.confidence, found.pairs, width=0.04, color=INK)
    below.set(xlabel="confidence", ylabel="pairs")
    return saved(figure, path)

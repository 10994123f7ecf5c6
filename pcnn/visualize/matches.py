"""Matches between two clouds, drawn as lines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

RIGHT, WRONG = "#1f9d55", "#d64545"
MOST = 300  # lines; more hide each other
POINTS = 40_000  # of each cloud

Colour = tuple[int, int, int]


def draw_matches(
    place: Any,
    source: NDArray[np.floating],
    target: NDArray[np.floating],
    matches: NDArray[np.integer],
    right: NDArray[np.bool_],
    colours: tuple[Colour, Colour],
) -> None:
    """Draw two clouds side by side, along the axis they are thinnest in, with lines between them.

    Both lie in their own frames: lines of right matches need not be parallel. At most 300 matches
    are drawn, an even choice of all; the title counts all of them.

    Args:
        place: matplotlib axes.
        source: [N, 3] [m], drawn left.
        target: [M, 3] [m], drawn right.
        matches: [K, 2] rows of source and target, at least one.
        right: [K] which matches are right.
        colours: of source and target, 0..255.
    """
    left, laid = _flat(source), _flat(target)
    laid[:, 0] += left[:, 0].max() - laid[:, 0].min() + 0.1 * np.ptp(left[:, 0])
    for points, colour in ((left, colours[0]), (laid, colours[1])):
        some = points[:: -(-len(points) // POINTS)]
        place.scatter(
            some[:, 0], some[:, 1], s=1.0, color=tuple(c / 255 for c in colour), linewidths=0
        )
    chosen = np.arange(0, len(matches), -(-len(matches) // MOST))
    for wanted, shade, front in ((False, WRONG, 2), (True, RIGHT, 3)):
        rows = matches[chosen[right[chosen] == wanted]]
        ends = np.stack([left[rows[:, 0]], laid[rows[:, 1]]], 1)  # [k, 2, 2]
        place.plot(*ends.transpose(2, 1, 0), color=shade, linewidth=0.4, alpha=0.6, zorder=front)
    place.set_title(
        f"matches, {int(right.sum())} of {len(right)} right (green)", loc="left", fontsize=12
    )
    place.set_aspect("equal")
    place.set_axis_off()


def _flat(points: NDArray[np.floating]) -> NDArray[np.float64]:
    """[N, 2]: the two widest axes, the wider one first."""
    axes = np.argsort(-np.ptp(points, axis=0), kind="stable")[:2]
    flat: NDArray[np.float64] = points[:, axes].astype(np.float64)
    centred: NDArray[np.float64] = flat - flat.mean(0)
    return centred

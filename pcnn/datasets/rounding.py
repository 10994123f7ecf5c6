"""Coordinates as float32, where that keeps them."""

from __future__ import annotations

import numpy as np

from pcnn.errors import FileError

#: Farthest a coordinate may be moved by rounding [m], about what a good sensor errs by.
ALLOWED = 0.01


def rounded_points(points: np.ndarray, origin: object) -> np.ndarray:
    """Points as float32.

    Coordinates of a map, millions of metres from its origin, would be rounded to steps of half a
    metre: clouds would lose their shape without a word.

    Args:
        points: [P, 3] numbers [m].
        origin: the file, or what the points are called in messages.

    Returns:
        [P, 3] float32; NaN and infinite numbers stay what they are.

    Raises:
        FileError: rounding would move a coordinate by more than `ALLOWED`.
    """
    if points.dtype.kind == "f" and points.dtype.itemsize <= 4:
        return points.astype(np.float32)  # nothing to round
    with np.errstate(over="ignore", invalid="ignore"):
        found = points.astype(np.float32)
        moved = np.abs(found.astype(np.float64) - points)  # NaN where a number is not finite
        far = bool((moved > ALLOWED).any())
    if far:
        raise FileError(
            origin,
            f"coordinates of up to {np.nanmax(np.abs(points)):.4g} m are too large for "
            f"float32, which moves them by up to {np.nanmax(moved):.2g} m; subtract one offset "
            "from all points",
        )
    return found

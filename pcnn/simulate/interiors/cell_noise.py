"""Noise that belongs to a place and not to a moment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def cell_noise(cells: NDArray[np.int64]) -> NDArray[np.float64]:
    """Hash integer cells [..., 3] to numbers in 0..1, equal for equal cells."""
    mixed = cells @ np.array([73856093, 19349663, 83492791])
    mixed = (mixed ^ (mixed >> 13)) * 1274126177 & 0x7FFFFFFF
    return np.asarray(((mixed ^ (mixed >> 16)) & 0xFFFF) / 65535.0)

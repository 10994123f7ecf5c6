"""Random numbers that belong to a place and not to a moment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats

_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


def cell_noise(cells: NDArray[Any], salt: int = 0) -> Floats:
    """Draw a number in [0, 1) for each integer cell [..., 3], equal for equal cells and salts."""
    # integer mixing in the manner of Murmur3's finaliser; overflow wraps and is meant
    i = cells.astype(np.int64).view(np.uint64)
    key = i[..., 0] * _FACTORS[0] + i[..., 1] * _FACTORS[1]
    key += i[..., 2] * _FACTORS[2] + np.uint64(salt * 0x27D4EB2F165667C5 % 2**64)
    key ^= key >> np.uint64(33)
    key *= np.uint64(0xFF51AFD7ED558CCD)
    key ^= key >> np.uint64(33)
    key *= np.uint64(0xC4CEB9FE1A85EC53)
    key ^= key >> np.uint64(33)
    return np.asarray((key >> np.uint64(11)).astype(np.float64) / 2.0**53)

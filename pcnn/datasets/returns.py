"""Which rows of a capture are points: sensors write NaN or zeros where no pulse came back."""

from __future__ import annotations

import numpy as np


def valid_returns(points: np.ndarray) -> np.ndarray:
    """Rows that are points, not missing returns.

    A missing return has a coordinate that is NaN or infinite, or lies at exactly (0, 0, 0).

    Args:
        points: [P, 3 or more] numbers; the first three columns are x, y, z.

    Returns:
        [P] bool, False where the row is no return.
    """
    places = points[:, :3]
    valid = (places != 0).any(axis=1)
    if places.dtype.kind == "f":
        valid &= np.isfinite(places).all(axis=1)
    return valid

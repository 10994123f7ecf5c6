"""A few scans of many, spread evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def spread(items: Sequence[T], limit: int | None) -> list[T]:
    """Return `limit` items, the first and the last among them; all where None or enough.

    Raises:
        ValueError: a limit below 1.
    """
    if limit is None or limit >= len(items):
        return list(items)
    if limit < 1:
        raise ValueError(f"limit must be at least 1 scan or none, got {limit}")
    rows = np.linspace(0, len(items) - 1, limit).round().astype(int)
    return [items[row] for row in rows]

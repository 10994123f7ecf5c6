"""Square tiles of a large cloud."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class Tiles:
    """The squares ``floor(x / size), floor(y / size)`` of a cloud.

    Args:
        places: [P, 2 or more] x, y, ... [m].
        size: edge of a square [m].

    Raises:
        ValueError: a size that is not positive.
    """

    def __init__(self, places: np.ndarray, size: float) -> None:
        if not 0 < size < float("inf"):
            raise ValueError(f"tiles need a positive edge [m], got {size}")
        self.size = size
        self.places = places[:, :2]
        cells = np.floor(self.places / size).astype(np.int64)  # [P, 2]
        self.numbers, tile = np.unique(cells, axis=0, return_inverse=True)
        self._order = np.argsort(tile.reshape(-1), kind="stable")
        counts = np.bincount(tile.reshape(-1), minlength=len(self.numbers))
        self._starts = np.concatenate([[0], counts.cumsum()])
        self._at = {(int(i), int(j)): number for number, (i, j) in enumerate(self.numbers)}

    def __len__(self) -> int:
        """Number of squares that hold points."""
        return len(self.numbers)

    def rows(self, number: int) -> np.ndarray:
        """Return the points of a square, rising."""
        return self._order[self._starts[number] : self._starts[number + 1]]

    def with_margin(self, margin: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield every square with the points around it.

        Args:
            margin: how far around [m], at most the edge of a square.

        Yields:
            [M] points of a square and its margin, and [M] bool, which of them are the square's
            own; every point is one square's own.

        Raises:
            ValueError: a margin out of range.
        """
        if not 0 <= margin <= self.size:
            raise ValueError(f"margin must lie in [0, {self.size}] m, got {margin}")
        for i, j in self.numbers.tolist():
            around = [
                self.rows(self._at[i + a, j + b])
                for a in (-1, 0, 1)
                for b in (-1, 0, 1)
                if (i + a, j + b) in self._at
            ]
            rows = np.concatenate(around)
            low = np.array([i, j]) * self.size - margin
            high = np.array([i + 1, j + 1]) * self.size + margin
            own = np.isin(rows, self.rows(self._at[i, j]), assume_unique=True)
            inside = ((self.places[rows] >= low) & (self.places[rows] <= high)).all(axis=1)
            kept = own | inside
            yield rows[kept], own[kept]

"""A cloud as a page shows it: positions about an origin, and what is known of its points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Layers of labels, in the order in which they are offered.
LABELS = ("prediction", "truth", "labels")

#: Coordinates beyond this are moved before they are rounded to float32.
_FAR = 1e4

#: Most decimals with which a file writes coordinates that float32 keeps.
_DECIMALS = 6

#: Fields with a value for every point, besides points and labels.
_VALUES = ("rows", "intensity", "rgb", "confidence")

Rgb = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class ViewedCloud:
    """Points of a cloud, with everything that a page can show of them."""

    name: str  # what it is called
    points: NDArray[np.floating]  # [P, 3] finite numbers, in the unit of the file
    rows: NDArray[np.integer] | None = None  # [P] rows of the points in their file
    intensity: NDArray[np.floating] | None = None  # [P] in any unit, or None
    rgb: NDArray[np.uint8] | None = None  # [P, 3] uint8, or None
    labels: Mapping[str, NDArray[np.integer]] = field(default_factory=dict)
    confidence: NDArray[np.floating] | None = None  # [P] in 0..1, or None
    pose: NDArray[np.floating] | None = None
    color: Rgb | None = None  # of the cloud as a whole; None leaves the choice to the page
    simulated: bool = False  # whether the points are simulated, which is then written large

    def __post_init__(self) -> None:
        n = len(self.points)
        if self.points.shape != (n, 3):
            raise ValueError(f"{self.name}: points must be [P, 3], got {list(self.points.shape)}")
        if not np.isfinite(self.points).all():
            raise ValueError(f"{self.name}: points must be finite; leave missing returns out")
        strange = [name for name in self.labels if name not in LABELS]
        if strange:
            raise ValueError(f"{self.name}: labels are {', '.join(LABELS)}, got {strange[0]!r}")
        for name, values in self._of_points().items():
            if values is not None and len(values) != n:
                raise ValueError(f"{self.name}: {name} of {len(values)} points, expected {n}")
        if self.pose is not None and self.pose.shape != (4, 4):
            raise ValueError(f"{self.name}: a pose is [4, 4], got {list(self.pose.shape)}")

    def _of_points(self) -> dict[str, NDArray | None]:
        """Everything but the points that has a value for each."""
        own = {name: getattr(self, name) for name in _VALUES}
        return {**own, **self.labels}

    def __len__(self) -> int:
        return len(self.points)

    def shuffled(self, limit: int, seed: int = 0) -> ViewedCloud:
        """At most `limit` points in random order, so that the first n are an even choice of
        them.
        """
        order = np.random.default_rng(seed).permutation(len(self))[:limit]
        chosen: dict[str, Any] = {
            name: None if values is None else values[order]
            for name, values in self._of_points().items()
            if name in _VALUES
        }
        if self.rows is None:
            chosen["rows"] = order
        labels = {name: values[order] for name, values in self.labels.items()}
        return replace(self, points=self.points[order], labels=labels, **chosen)


@dataclass(frozen=True, eq=False)
class Places:
    """Positions that float32 holds, and how the numbers of the file are found again."""

    origin: NDArray[np.float64]  # [3] float64, added to the others
    near: NDArray[np.float32]  # [P, 3] float32
    rest: NDArray[np.float32] | None  # [P, 3] float32, what rounding left out
    decimals: int | None

    @classmethod
    def of(cls, points: NDArray[np.floating]) -> Places:
        """Positions about the middle of their box where they lie far from zero."""
        origin = np.zeros(3)
        if len(points) and np.abs(points).max() > _FAR:
            low, high = points.min(axis=0), points.max(axis=0)
            origin = np.round((low / 2 + high / 2).astype(np.float64))
        if points.dtype == np.float32 and not origin.any():
            return cls(origin, points, None, None)
        wide = points.astype(np.float64)
        near = (wide - origin).astype(np.float32)
        found = origin + near
        for decimals in range(_DECIMALS + 1):
            # 1e-9 of the largest coordinates of a map is float64's own rounding
            rounded = np.round(found, decimals)
            if np.allclose(rounded, wide, rtol=0.0, atol=1e-3 * 10.0**-decimals):
                return cls(origin, near, None, decimals)
        rest = (wide - origin - near).astype(np.float32)
        return cls(origin, near, rest if rest.any() else None, None)

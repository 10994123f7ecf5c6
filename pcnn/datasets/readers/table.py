"""Points of a file as columns with names, in every format; missing returns; rounding to float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.errors import FileError
from pcnn.files.rows import Rows

COLORS = ("red", "green", "blue")

#: Names of a channel in formats and programs; the first is ours.
_NAMES = {
    "intensity": ("intensity", "remission", "reflectance", "reflectivity", "scalar_intensity"),
    "red": ("red", "r", "diffuse_red"),
    "green": ("green", "g", "diffuse_green"),
    "blue": ("blue", "b", "diffuse_blue"),
}
_MEANT = {called: name for name, all_names in _NAMES.items() for called in all_names}


@dataclass(frozen=True, eq=False)
class PointTable:
    """Positions, and columns that are fetched by name.

    Args:
        path: the file.
        places: [P, 3] numbers in the unit of the file, missing returns among them.
        names: of the columns, as the file has them.
        column: values [P] of a name.
        labels: [P] int64 as the file itself holds them, or None.
        intensity_max: the number that is intensity 1 in this format.
        in_map: the format's coordinates are those of a map.
        unnamed: the file has no names; these number its columns.
    """

    path: Path
    places: np.ndarray
    names: tuple[str, ...]
    column: Callable[[str], np.ndarray]
    labels: np.ndarray | None = None
    intensity_max: float = 1.0
    in_map: bool = False
    unnamed: bool = False

    def __len__(self) -> int:
        return len(self.places)

    def find(self, name: str) -> str | None:
        """Return what the file calls a channel, or None; see `find_name`."""
        return find_name(name, self.names)


@dataclass(frozen=True, eq=False)
class RowTable:
    """A cloud whose file can be read in ranges of rows.

    Args:
        path: the file.
        rows: its records.
        table: records as columns with names.
    """

    path: Path
    rows: Rows
    table: Callable[[np.ndarray], PointTable]

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, first: int, count: int) -> PointTable:
        """Points from ``first`` on, so many of them or as many as there are."""
        return self.table(self.rows.read(first, count))


def meant(name: str) -> str:
    """Name of a channel in lower case; ``intensity`` for all that mean it, likewise colours."""
    lower = name.lower()
    return _MEANT.get(lower, lower)


def find_name(name: str, names: Sequence[str]) -> str | None:
    """Find a channel among the names of a file.

    The name as it is comes first, then in any case, then what else means the same.
    """
    if name in names:
        return name
    lower: dict[str, str] = {}
    for candidate in names:
        lower.setdefault(candidate.lower(), candidate)
    also = _NAMES.get(meant(name), ())
    return next((lower[n] for n in (name.lower(), *also) if n in lower), None)


def colours_first(names: Sequence[str]) -> bool:
    """Whether red, green and blue lead the channels, or are not all among them."""
    known = [meant(name) for name in names]
    return known[:3] == list(COLORS) or not set(COLORS) <= set(known)


def places_of(points: np.ndarray) -> np.ndarray:
    """Positions [P, 3] of a structured array with fields x, y, z in any case."""
    names = points.dtype.names or ()
    return np.stack([points[find_name(axis, names)] for axis in "xyz"], axis=1)


def missing_axes(names: Iterable[str]) -> list[str]:
    """Which of x, y, z are not among the names, in any case."""
    lower = {name.lower() for name in names}
    return [axis for axis in "xyz" if axis not in lower]


def valid_returns(points: np.ndarray) -> np.ndarray:
    """Rows that are points, not missing returns.

    A missing return has a coordinate that is NaN or infinite, or lies at exactly (0, 0, 0).

    Args:
        points: [P, 3 or more] numbers; the first three columns are x, y, z.

    Returns:
        [P] bool, False where the row is no return.
    """
    x, y, z = points[:, 0], points[:, 1], points[:, 2]  # along rows of three numpy is slow
    valid = (x != 0) | (y != 0) | (z != 0)
    if points.dtype.kind == "f":
        for axis in (x, y, z):
            valid &= np.isfinite(axis)
    return np.asarray(valid)


#: Farthest a coordinate may be moved by rounding [m], about what a good sensor errs by.
ALLOWED = 0.01


def rounded_points(points: np.ndarray, origin: object) -> np.ndarray:
    """Points as float32.

    Coordinates of a map, millions of metres from its origin, would be rounded to steps of half a
    metre: clouds would silently lose their shape.

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
        largest = max(-found.min(), found.max()) if found.size else 0.0  # not a number if one is
        if largest * np.finfo(np.float32).eps < ALLOWED:
            return found
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

"""Columns of points by name: what names mean, what published files hold, what numbers may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pcnn.errors import FileError

COLORS = ("red", "green", "blue")
LABEL = "label"
IGNORED = "_"

#: Names of a channel in formats and programs; the first is ours.
_NAMES = {
    "intensity": ("intensity", "remission", "reflectance", "reflectivity", "scalar_intensity"),
    "red": ("red", "r", "diffuse_red"),
    "green": ("green", "g", "diffuse_green"),
    "blue": ("blue", "b", "diffuse_blue"),
    LABEL: (LABEL, "class", "scalar_label", "scalar_class"),
}
_MEANT = {called: name for name, all_names in _NAMES.items() for called in all_names}

#: Rows of a part of a cloud.
PART = 1 << 18


def meant(name: str) -> str:
    """Name of a channel in lower case; ``intensity`` for all that mean it, likewise colours."""
    return _MEANT.get(name.lower(), name.lower())


def also_called(name: str) -> tuple[str, ...]:
    """A name in lower case, then the others that mean the same."""
    return (name.lower(), *_NAMES.get(meant(name), ()))


def find_name(name: str, names: Iterable[str]) -> str | None:
    """Find a channel among names: as it is, then in any case, then what else means the same."""
    names = tuple(names)
    lower = {candidate.lower(): candidate for candidate in reversed(names)}
    found = [lower[called] for called in also_called(name) if called in lower]
    return name if name in names else next(iter(found), None)


def colours_first(names: Sequence[str]) -> bool:
    """Whether red, green and blue lead the channels, or are not all among them."""
    known = [meant(name) for name in names]
    return known[:3] == list(COLORS) or not set(COLORS) <= set(known)


@dataclass(frozen=True, eq=False)
class Columns:
    """Some or all points of a file, their columns by name."""

    path: Path  # the file
    places: np.ndarray  # [P, 3] numbers in the unit of the file, missing returns among them
    values: Mapping[str, np.ndarray] = field(default_factory=dict)  # further columns [P]
    labels: np.ndarray | None = None  # [P] integers as the file itself holds them, or None
    intensity_max: float = 1.0  # the number that is intensity 1 in this format
    in_map: bool = False  # the format's coordinates are those of a map
    unnamed: bool = False  # the file has no names; these number its columns
    color_max: float = 1.0  # the number that is a full colour
    held: str = ""  # names of all columns beside x, y, z where `values` are some of them

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: slice) -> Columns:
        values = {name: column[rows] for name, column in self.values.items()}
        labels = None if self.labels is None else self.labels[rows]
        return replace(self, places=self.places[rows], values=values, labels=labels)

    def find(self, name: str) -> np.ndarray | None:
        """The values of a channel, whatever the file calls it; None where it has none."""
        found = find_name(name, self.values)
        return None if found is None else self.values[found]


def full_color(values: Mapping[str, np.ndarray]) -> float:
    """The number that is a full colour: 1 of shares, 255 of bytes, 65535 of larger numbers."""
    colors = [one for name, one in values.items() if meant(name) in COLORS]
    top = max((float(one[np.isfinite(one)].max(initial=0)) for one in colors), default=0.0)
    if top <= 1 and not any(one.dtype.kind in "iu" for one in colors):
        return 1.0
    return 255.0 if top <= 255 else max(65535.0, top)


@dataclass(frozen=True)
class Layout:
    """Names of the columns of a file of bare numbers."""

    names: tuple[str, ...]  # x, y and z among them; label holds labels, _ is passed over
    intensity_max: float = 1.0  # the number that is intensity 1

    def __str__(self) -> str:
        return ",".join(self.names)


#: Columns of published files, all float32, by the name of their data set.
LAYOUTS: Mapping[str, Layout] = {
    "kitti": Layout(("x", "y", "z", "intensity")),
    "nuscenes": Layout(("x", "y", "z", "intensity", "ring"), 255.0),
    "scannet": Layout(("x", "y", "z", *COLORS)),  # 0..255, as mmdetection3d has it
    "sunrgbd": Layout(("x", "y", "z", *COLORS)),  # 0..1
}


def layout_of(names: Sequence[str]) -> Layout:
    """A layout of `LAYOUTS` by its one name, or of the columns in order."""
    lower = tuple(name.strip().lower() for name in names)
    if len(lower) == 1 and lower[0] in LAYOUTS:
        return LAYOUTS[lower[0]]
    known = [meant(name) for name in lower if name != IGNORED]
    if len(set(known)) < len(known) or not {"x", "y", "z"} <= set(known) or "" in known:
        given, layouts = ",".join(lower), ", ".join(LAYOUTS)
        raise ValueError(f"columns: {given} is none of {layouts}, and no list with x, y, z")
    return Layout(lower)


#: Largest numbers by meaning: the largest coordinate of a map is a northing below 10,000 km [m].
_LARGEST = {**dict.fromkeys("xyz", 1e7), "intensity": 65535.0, "ring": 1023.0}
_LARGEST |= {LABEL: float(1 << 53), **dict.fromkeys(COLORS, 255.0)}
_SIGNED = ("x", "y", "z", LABEL)


def check_ranges(rows: np.ndarray, layout: Layout) -> None:
    """Refuse columns with finite numbers that no such column has, missing returns left out."""
    valid = valid_returns(rows[:, [layout.names.index(axis) for axis in "xyz"]])
    for number, name in enumerate(layout.names):
        column = rows[:, number] if valid.all() else rows[valid, number]
        column = column[np.isfinite(column)]
        low, high = float(column.min(initial=np.inf)), float(column.max(initial=-np.inf))
        most = _LARGEST.get(meant(name), np.inf)
        least = -most if meant(name) in _SIGNED or most == np.inf else 0.0
        whole = meant(name) not in ("ring", LABEL) or bool((np.round(column) == column).all())
        if len(column) and not (whole and least <= low <= high <= most):
            raise ValueError(f"column {name} of {layout} holds numbers of {low:.4g} to {high:.4g}")


def is_mixed(numbers: np.ndarray, width: int) -> bool:
    """True where numbers of other columns were cut into rows of this width."""
    ranks = np.argsort(np.argsort(numbers)).astype(np.float64)

    def apart(count: int) -> float:
        rows = ranks[: len(ranks) // count * count].reshape(-1, count)
        return float(rows.mean(0).var() / max(rows.var(), 1e-9))

    others = {len(layout.names) for layout in LAYOUTS.values()} - {width}
    return len(numbers) > 256 and max(map(apart, others)) > 2 * apart(width) + 0.05


def valid_returns(points: np.ndarray) -> np.ndarray:
    """Rows [P] that are points: no coordinate is NaN or infinite, and not all are exactly zero."""
    x, y, z = points[:, 0], points[:, 1], points[:, 2]  # along rows of three numpy is slow
    valid = (x != 0) | (y != 0) | (z != 0)
    if points.dtype.kind == "f":
        for axis in (x, y, z):
            valid &= np.isfinite(axis)
    return np.asarray(valid)


#: Farthest a coordinate may be moved by rounding [m], about what a good sensor errs by.
ALLOWED = 0.01


def rounded_points(points: np.ndarray, origin: object) -> np.ndarray:
    """Points [P, 3] as float32."""
    if points.dtype.kind == "f" and points.dtype.itemsize <= 4:
        return points.astype(np.float32)  # nothing to round
    with np.errstate(over="ignore", invalid="ignore"):
        found = points.astype(np.float32)
        largest = max(-found.min(), found.max()) if found.size else 0.0  # not a number if one is
        if largest * np.finfo(np.float32).eps < ALLOWED:
            return found
        moved = np.abs(found.astype(np.float64) - points)  # NaN where a number is not finite
        if not (moved > ALLOWED).any():
            return found
    told = f"coordinates of up to {np.nanmax(np.abs(points)):.4g} m are too large for float32"
    raise FileError(origin, f"{told}: subtract one offset from all points")

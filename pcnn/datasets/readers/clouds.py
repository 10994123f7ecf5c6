"""Point clouds from files of all formats: which columns become channels, whole or part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pcnn.datasets.readers import formats, las
from pcnn.datasets.readers.columns import (
    COLORS,
    LABEL,
    PART,
    Columns,
    find_name,
    layout_of,
    meant,
    rounded_points,
    valid_returns,
)
from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import check_size, forget_pages, named
from pcnn.messages import counted

if TYPE_CHECKING:
    from pcnn.datasets.cloud import Cloud

SUFFIXES = (".bin", ".npy", ".pcd", ".ply", *las.SUFFIXES)

#: Coordinates beyond this [m] are those of a map: float32 would keep them to half a millimetre.
_FAR = 1e4
#: Half of the points of a scan lie within this distance of its sensor along x and y [m].
_ABOUT_SENSOR = 30.0
#: Their median height above it: most are ground [m].
_GROUND = (-4.0, 0.5)


@dataclass(frozen=True)
class Reading:
    """The part of a file that is read, and how."""

    # properties that become channels, in order; None: intensity and colours, where they are there
    channels: tuple[str, ...] | None = None
    intensity_max: float | None = None  # the number that is intensity 1; None: the format's
    centred: bool = False  # move the origin of clouds of a map to their middle
    columns: tuple[str, ...] | None = None  # of files of bare numbers, or the name of a layout
    fill: Mapping[str, float] = field(default_factory=dict)
    scale: float = 1.0  # metres in a unit of the files
    at_sensor: bool = False  # with centred: the origin is where a sensor seems to stand
    on_floor: bool = False  # the origin is the middle of the box, at the height of the floor

    def __post_init__(self) -> None:
        names = [name.lower() for name in self.channels or ()]
        if len(set(names)) < len(names):
            raise ValueError(f"channels must differ, got {', '.join(self.channels or ())}")
        for name in ("intensity_max", "scale"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be a positive number, got {value}")
        for name, value in self.fill.items():
            if not np.isfinite(value):
                raise ValueError(f"fill: {name} must be a finite number, got {value}")
        if self.columns is not None:
            layout_of(self.columns)

    @property
    def places_alone(self) -> Reading:
        return replace(self, channels=(), fill={})

    @property
    def wanted(self) -> tuple[str, ...]:
        return ("intensity", *COLORS) if self.channels is None else self.channels

    def names(self, table: Columns) -> tuple[str, ...]:
        """Names of the channels that are read of a file, such as ``intensity``."""
        if self.channels is not None:
            return self.channels
        if table.unnamed:
            return tuple(table.values)
        there = [n for n in self.wanted if n in self.fill or table.find(n) is not None]
        return tuple(there if set(COLORS) <= set(there) else [n for n in there if n not in COLORS])

    def values(self, table: Columns) -> np.ndarray:
        """Channels [P, F] float32; colours are shares of a full one."""
        columns = [np.empty((len(table), 0), dtype=np.float32)]
        columns += [self._channel(table, name)[:, None] for name in self.names(table)]
        return np.concatenate(columns, axis=1)

    def filled(self, fill: Mapping[str, float]) -> dict[str, float]:
        """The numbers of `fill` with others before them, which count for all names of a channel."""
        given = {meant(name) for name in fill}
        kept = {name: value for name, value in self.fill.items() if meant(name) not in given}
        return {**kept, **fill}

    def origin(self, points: np.ndarray, in_map: bool, piece: bool = False) -> np.ndarray:
        """Where the origin of a cloud is put, in the coordinates of its file."""
        if not len(points) or not (self.centred or self.on_floor):
            return np.zeros(3)
        near = max(-points.min(), points.max()) <= _FAR
        if near and not (self.on_floor or self.at_sensor or in_map or piece):
            return np.zeros(3)
        middle = (points.min(axis=0) + points.max(axis=0)) / 2
        if self.on_floor:
            middle[2] = np.quantile(points[:, 2], 0.001)
            return np.round(middle.astype(np.float64), 3)
        if self.at_sensor:
            middle = np.median(points, axis=0)
            about = float(np.median(np.hypot(points[:, 0], points[:, 1])))
            if not piece and about <= _ABOUT_SENSOR:
                middle[:2] = 0
            if not piece and _GROUND[0] <= middle[2] <= _GROUND[1]:
                middle[2] = 0
            return np.round(middle)
        middle[2] = np.median(points[:, 2])  # a bird or a stray echo moves the middle of heights
        return np.round(middle)

    def _channel(self, table: Columns, name: str) -> np.ndarray:
        values = table.find(name)
        if values is None:
            filled = find_name(name, self.fill)
            if filled is None:
                held = table.held[:400] or ", ".join(table.values)[:200] or "none"
                given = f"one number for all points: --fill {name}=0, dataset.fill={{{name}: 0}}"
                raise FileError(table.path, f"no channel {name!r}; the file has {held} ({given})")
            return np.full(len(table), self.fill[filled], dtype=np.float32)
        if values.ndim != 1:
            raise FileError(table.path, f"{name} holds several numbers a point")
        with np.errstate(over="ignore"):  # an infinite channel is a missing return
            values = values.astype(np.float32)
        full = {**dict.fromkeys(COLORS, table.color_max), "intensity": self.intensity_max}
        return values / np.float32(full.get(meant(name), 1.0) or table.intensity_max)


def chosen_columns(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of columns from a configuration: a list, or text with commas."""
    if columns is None:
        return None
    return tuple(columns.split(",")) if isinstance(columns, str) else tuple(columns)


_PLAIN = Reading()


def read_columns(path: Path, reading: Reading = _PLAIN, *further: str) -> Columns:
    """All rows of a file, missing returns among them; of LAS files the wanted columns alone."""
    suffix = path.suffix.lower()
    with named(path, f"{suffix} file"):
        if not path.is_file():
            raise MissingFileError(path, "is a folder" if path.is_dir() else "no such file")
        if suffix in las.SUFFIXES:
            return las.read_las(path, (*reading.wanted, "classification", *further))
        if suffix not in formats.READERS:
            raise FileError(path, f"a cloud ends in {', '.join((*SUFFIXES, *formats.TEXTS))}")
        layout = None if reading.columns is None else layout_of(reading.columns)
        return formats.READERS[suffix](path, layout)


def read_points(path: str | Path, name: str | None = None, reading: Reading = _PLAIN) -> Cloud:
    """Read a cloud: positions [m], further channels, and labels where the file itself holds them.

    * ``.bin``: float32 x, y, z, intensity (KITTI), in ``.pcd.bin`` also ring (nuScenes); a file
      whose numbers are not like them is refused unless ``reading.columns`` names its columns.
    * ``.npy``: [N, 3 + F] numbers: x, y, z and F further columns without names, or one that is
      the intensity; or [N] with named fields.
    * ``.ply``, ``.pcd``: float x, y, z; ``intensity`` (or ``remission``, ``reflectance``) and
      ``red``, ``green``, ``blue``, also packed into ``rgb`` or ``rgba`` (those beyond 1 are divided
      by 255, or by 65535), become the channels; an integer ``label`` or ``class`` (also with
      CloudCompare's ``scalar_``) the labels, as they are.
    * ``.txt``, ``.xyz``, ``.csv``, ``.asc``: a line a point below names, behind ``#`` or not;
      without names four columns are x, y, z, intensity, and six x, y, z, red, green, blue.
    * ``.las``, ``.laz``: x, y, z; intensity / 65535, and colours in 0..1 where the point format has
      them, become the channels, ``classification`` the labels, as it is. Needs the extra ``las``.

    Names of fields count in any case. Missing returns, and points with a channel that is NaN or
    infinite, are left out: ``point_index`` says where the others lie, and ``n_points_total`` counts
    all.
    """
    import torch

    from pcnn.datasets.cloud import Cloud

    path = Path(path)
    table = read_columns(path, reading)
    with named(path, f"{path.suffix} file"):
        check_size(path, table.places.nbytes, what="its points")
        part = _whole(table, reading)
        places, labels = part.places, table.labels
        origin = reading.origin(places, table.in_map)
        x, y, z = origin.tolist()
        if labels is not None:
            labels = (labels if len(part) == len(table) else labels[part.rows]).astype(np.int64)
        return Cloud(
            torch.from_numpy(rounded_points(places - origin if origin.any() else places, path)),
            torch.from_numpy(part.channels),
            None if labels is None else torch.from_numpy(labels),
            path.stem if name is None else name,
            str(path),
            torch.from_numpy(part.rows),
            n_points_total=len(table),
            origin=(x, y, z),
        )


@dataclass(frozen=True, eq=False)
class Part:
    """Points of a part of a cloud, missing returns left out."""

    rows: np.ndarray  # [M] int64 numbers of the points in the file, rising
    places: np.ndarray  # [M, 3] coordinates of the file times its scale [m]
    channels: np.ndarray  # [M, F] float32

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, chosen: np.ndarray | slice) -> Part:
        """The points of a mask, of positions in the part, or of a slice."""
        return Part(self.rows[chosen], self.places[chosen], self.channels[chosen])


def _part(table: Columns, reading: Reading, first: int) -> Part:
    """The returns among rows of a file, of which the first has this number."""
    places, channels = table.places, reading.values(table)
    valid = valid_returns(places) & np.isfinite(channels).all(axis=1)
    rows = np.flatnonzero(valid)
    if len(rows) < len(valid):
        places, channels = places[rows], channels[rows]
    if reading.scale != 1.0:
        places = places.astype(np.float64) * reading.scale
    return Part(rows + first, places, channels)


def _whole(table: Columns, reading: Reading) -> Part:
    part = _part(table, reading, 0)
    if len(table) and not len(part):
        found = f"all {counted(len(table), 'point')} are missing returns"
        raise FileError(table.path, f"{found} (NaN or infinite numbers, or at (0, 0, 0))")
    return part


@dataclass(frozen=True, eq=False)
class PartedCloud:
    """A cloud that is taken part by part, as often as is asked for."""

    file: Columns  # in memory, or mapped
    reading: Reading  # which channels are read

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def points(self) -> int:
        return len(self.file)

    @property
    def in_map(self) -> bool:
        return self.file.in_map

    def __iter__(self) -> Iterator[Part]:
        with named(self.path, f"{self.path.suffix} file"):
            for first in range(0, max(self.points, 1), PART):
                part = _part(self.file[first : first + PART], self.reading, first)
                yield replace(part, places=part.places.astype(np.float64, copy=False))
                forget_pages(self.file.places)

    def whole(self) -> Part:
        part = _whole(self.file, self.reading)
        return replace(part, places=part.places.astype(np.float64, copy=False))

    def sample(self, most: int) -> np.ndarray:
        """Places [M, 3] float64 of some points, spread over the file, M about ``most``."""
        step = max(1, self.points // max(most, 1))
        plain = replace(self, reading=self.reading.places_alone)
        return np.concatenate([np.empty((0, 3)), *(part.places[::step] for part in plain)])


def open_parts(path: Path, reading: Reading) -> PartedCloud:
    return PartedCloud(read_columns(path, reading), reading)


def has_own_labels(path: Path, columns: Sequence[str] | None = None) -> bool:
    """Whether a cloud's file holds labels: a property, a column, or the classes of LAS."""
    if path.suffix.lower() in las.SUFFIXES:
        return True
    with named(path, f"{path.suffix} file"):
        return find_name(LABEL, formats.names_in(path, columns)) is not None


def intensity_top(cloud: PartedCloud) -> float:
    """The largest intensity of a cloud whose format does not say which number is 1; else 0."""
    table = cloud.file
    values = table.find("intensity")
    if table.intensity_max != 1.0 or values is None or values.ndim != 1:
        return 0.0
    return float(values[valid_returns(table.places) & np.isfinite(values)].max(initial=0))

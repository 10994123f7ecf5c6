"""Which numbers of a file become the channels of a cloud, and where its origin lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pcnn.datasets.readers.columns import columns_named
from pcnn.datasets.readers.table import COLORS, PointTable, find_name, meant
from pcnn.errors import FileError
from pcnn.files.bounded import LIMIT
from pcnn.hints import check_fields
from pcnn.ranges import Positive

#: Coordinates beyond this [m] are those of a map: float32 would keep them to half a millimetre.
_FAR = 1e4
#: Half of the points of a scan lie within this distance of its sensor along x and y [m].
_ABOUT_SENSOR = 30.0
#: Their median height above it: most are ground [m].
_GROUND = (-4.0, 0.5)


@dataclass(frozen=True)
class Reading:
    """The part of a file that is read, and how.

    Args:
        channels: names of the properties that become channels, in order and in any case;
            ``intensity`` stands for whatever a format calls it. None: intensity, then red, green
            and blue, as far as the file has them; all columns of an array without names.
        intensity_max: the number in the files that becomes intensity 1; None: 65535 in LAS files,
            255 in those of nuScenes, 1 in others.
        centred: put the origin of LAS and LAZ clouds, and of others whose coordinates lie farther
            than 10 km from zero, into the middle of the cloud; False keeps the file's.
        columns: names of the columns of ``.bin`` and ``.npy`` files, or one name of
            `pcnn.datasets.readers.columns.LAYOUTS`; None: as `read_points` says.
        fill: numbers for channels that a file lacks, by name.
        strict: refuse clouds with missing returns (NaN, or zeros) in place of leaving these out.
        scale: metres in a unit of the files' coordinates.
        at_sensor: with ``centred``, of any file: the origin is put into the median along every
            axis, about which points are as dense as about a sensor. Along x and y it stays where
            half of the points lie within 30 m of it, along z where their median is at -4 to 0.5 m.
        on_floor: put the origin of every cloud into the middle of its box along x and y, and to the
            height below which a thousandth of its points lies, as stray echoes do.
        by_place: take the columns of an array without names for the channels, in their order.
        max_gib: largest size of a file, and of what it unpacks to in memory [GiB].

    Raises:
        ValueError: a name that occurs twice, an ``intensity_max``, ``scale`` or ``max_gib`` that is
            not positive, or columns without x, y, z.
    """

    channels: tuple[str, ...] | None = None
    intensity_max: Positive | None = None
    centred: bool = False
    columns: tuple[str, ...] | None = None
    fill: Mapping[str, float] = field(default_factory=dict)
    strict: bool = False
    scale: Positive = 1.0
    at_sensor: bool = False
    on_floor: bool = False
    by_place: bool = False
    max_gib: Positive = LIMIT

    def __post_init__(self) -> None:
        if self.channels is not None:
            names = [name.lower() for name in self.channels]
            if len(set(names)) < len(names):
                raise ValueError(f"channels must differ, got {', '.join(self.channels)}")
        check_fields(self)
        for name, value in self.fill.items():
            if not np.isfinite(value):
                raise ValueError(f"fill: {name} must be a finite number, got {value}")
        if self.columns is not None:
            columns_named(self.columns)

    def names(self, table: PointTable) -> tuple[str, ...]:
        """Names of the channels that are read of a file, such as ``intensity``.

        Without a choice these are what the file has and ``fill`` adds.
        """
        if table.unnamed and (self.by_place or self.channels is None):
            return table.names
        if self.channels is not None:
            return self.channels
        there = {n for n in ("intensity", *COLORS) if n in self.fill or table.find(n) is not None}
        colors = COLORS if set(COLORS) <= there else ()
        return (*(("intensity",) if "intensity" in there else ()), *colors)

    def values(self, table: PointTable) -> np.ndarray:
        """Channels of the points of a file.

        Colours that are integers are divided by their type's largest value.

        Returns:
            [P, F] float32.

        Raises:
            FileError: a channel that the file does not have, and no number to fill it with.
        """
        columns = [np.empty((len(table), 0), dtype=np.float32)]
        columns += [self._channel(table, name)[:, None] for name in self.names(table)]
        return np.concatenate(columns, axis=1)

    def filled(self, fill: Mapping[str, float]) -> dict[str, float]:
        """The numbers of `fill` with others before them, which count for all names of a channel."""
        given = {meant(name) for name in fill}
        kept = {name: value for name, value in self.fill.items() if meant(name) not in given}
        return {**kept, **fill}

    def origin(self, points: np.ndarray, in_map: bool, piece: bool = False) -> np.ndarray:
        """Where the origin of a cloud is put, in the coordinates of its file.

        Args:
            points: [P, 3] finite numbers [m].
            in_map: the format's coordinates are those of a map.
            piece: a part of a larger cloud, whose own origin says nothing.

        Returns:
            [3] float64, whole metres: the middle of the box along x and y, the median of z; zero
            where the origin stays. With ``on_floor``, whole millimetres.
        """
        if self.on_floor and len(points):
            middle = (points.min(axis=0) + points.max(axis=0)) / 2
            middle[2] = np.quantile(points[:, 2], 0.001)
            return np.round(middle.astype(np.float64), 3)
        if not self.centred or not len(points):
            return np.zeros(3)
        if self.at_sensor:
            return np.round(_sensor(points, piece))
        if not (in_map or piece) and max(-points.min(), points.max()) <= _FAR:
            return np.zeros(3)
        middle = (points.min(axis=0) + points.max(axis=0)) / 2
        middle[2] = np.median(points[:, 2])  # a bird or a stray echo moves the middle of heights
        return np.round(middle)

    def _channel(self, table: PointTable, name: str) -> np.ndarray:
        found = table.find(name)
        if found is None:
            filled = find_name(name, tuple(self.fill))
            if filled is None:
                raise FileError(
                    table.path,
                    f"no channel {name!r}; the file has {', '.join(table.names) or 'none'} "
                    f"(one number for all points: --fill {name}=0, dataset.fill={{{name}: 0}})",
                )
            return np.full(len(table), self.fill[filled], dtype=np.float32)
        values = np.asarray(table.column(found))
        if values.ndim != 1:
            raise FileError(table.path, f"{found} holds several numbers a point")
        if meant(name) in COLORS and np.issubdtype(values.dtype, np.integer):
            return values.astype(np.float32) / np.iinfo(values.dtype).max
        if meant(name) == "intensity":
            top = self.intensity_max or table.intensity_max
            return values.astype(np.float32) / (np.float32(top) if top != 1.0 else 1)
        return values.astype(np.float32)


def chosen_columns(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of columns from a configuration: a list, or text with commas."""
    if columns is None:
        return None
    return tuple(columns.split(",")) if isinstance(columns, str) else tuple(columns)


def _sensor(points: np.ndarray, piece: bool) -> np.ndarray:
    """Where a sensor would stand [3]: the origin, as far as the points [P, 3] lie about it."""
    middle = np.median(points, axis=0)
    if piece:
        return middle
    if float(np.median(np.hypot(points[:, 0], points[:, 1]))) <= _ABOUT_SENSOR:
        middle[:2] = 0
    if _GROUND[0] <= middle[2] <= _GROUND[1]:
        middle[2] = 0
    return middle

"""Files of bare numbers: which columns they have, and whether the numbers agree."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pcnn.datasets.readers.column_count import is_contradicted, likely_columns, looked_at
from pcnn.datasets.readers.table import COLORS, PointTable, RowTable, meant, valid_returns
from pcnn.errors import FileError
from pcnn.files.bounded import LIMIT, check_size
from pcnn.files.rows import HeldRows, Rows, StoredRows, ranges, stamp_of

LABEL = "label"
IGNORED = "_"


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a file.

    Args:
        names: x, y and z among them; ``label`` holds labels, ``_`` is passed over.
        intensity_max: the number that is intensity 1.
    """

    names: tuple[str, ...]
    intensity_max: float = 1.0

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        return ",".join(self.names)


#: Columns of published files, all float32, by the name of their data set.
LAYOUTS: Mapping[str, Columns] = {
    "kitti": Columns(("x", "y", "z", "intensity")),
    "nuscenes": Columns(("x", "y", "z", "intensity", "ring"), 255.0),
    "scannet": Columns(("x", "y", "z", "red", "green", "blue")),  # 0..255, as mmdetection3d has it
    "sunrgbd": Columns(("x", "y", "z", "red", "green", "blue")),  # 0..1
}

#: Bounds of a coordinate [m]: the largest of a map is a northing below 10,000 km.
_COORDINATE = 1e7
_LARGEST = {"intensity": 65535.0, "ring": 1023.0, **dict.fromkeys(COLORS, 255.0)}
_LABEL = float(1 << 53)  # whole numbers beyond are not told apart
_WHOLE = ("ring", LABEL)


def columns_named(names: Sequence[str]) -> Columns:
    """Columns of a layout, or of their names.

    Args:
        names: one name of `LAYOUTS`, or the columns in order.

    Raises:
        ValueError: no layout of that name, a column that occurs twice, or no x, y, z.
    """
    lower = tuple(name.strip().lower() for name in names)
    if len(lower) == 1:
        if lower[0] not in LAYOUTS:
            raise ValueError(
                f"columns: {names[0]!r} is none of {', '.join(LAYOUTS)}; or name all columns, as "
                "in x,y,z,intensity,ring"
            )
        return LAYOUTS[lower[0]]
    named = [meant(name) for name in lower if name != IGNORED]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise ValueError(f"columns: {twice[0]} occurs twice in {','.join(lower)}")
    if not {"x", "y", "z"} <= set(named) or "" in named:
        raise ValueError(f"columns must be names with x, y and z among them, got {','.join(lower)}")
    return Columns(lower)


def plain_table(path: Path, values: np.ndarray, columns: Columns) -> PointTable:
    """Columns of numbers, each checked against what its name means; as `plain_rows`.

    Args:
        path: the file, for errors.
        values: [P, K] numbers.
        columns: K names.
    """
    return plain_rows(path, HeldRows(values), columns).part(0, len(values))


def plain_rows(path: Path, rows: Rows, columns: Columns) -> RowTable:
    """Columns of numbers that are read in ranges; all are looked at once, range by range.

    Args:
        path: the file, for errors.
        rows: [P, K] numbers.
        columns: K names.

    Raises:
        FileError: another number of columns, or numbers that a column cannot hold.
    """
    shape = rows.read(0, 0).shape[1:]
    if shape != (len(columns),):
        raise FileError(
            path,
            f"found numbers {[len(rows), *shape]}; columns {columns} name {len(columns)}",
        )
    found = ColumnRanges(columns)
    for values in ranges(rows):
        found.add(values)
    for name, problem in found.problems():
        raise FileError(
            path, f"column {name} of {columns} holds {problem}; name the columns that it has"
        )
    return RowTable(path, rows, partial(_table, path, columns, found.bytes_))


def _table(path: Path, columns: Columns, bytes_: Collection[str], values: np.ndarray) -> PointTable:
    place = {name: number for number, name in enumerate(columns.names)}

    def column(name: str) -> np.ndarray:
        found = values[:, place[name]]
        return found / found.dtype.type(255) if name in bytes_ else found

    labels = None
    if LABEL in place:  # -1 where a missing return has none
        numbers = values[:, place[LABEL]]
        labels = np.where(np.abs(numbers) <= _LABEL, numbers, -1).astype(np.int64)
    return PointTable(
        path,
        values[:, [place[axis] for axis in "xyz"]],
        tuple(n for n in columns.names if n not in ("x", "y", "z", LABEL, IGNORED)),
        column,
        labels,
        columns.intensity_max,
    )


class ColumnRanges:
    """Smallest and largest number of every column, missing returns left out, over parts of a cloud.

    Args:
        columns: names of the K columns.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._found: dict[str, tuple[float, float]] = {}
        self._fractions: dict[str, float] = {}

    def add(self, values: np.ndarray) -> None:
        """Look at a part [M, K]."""
        places = values[:, [self.columns.names.index(axis) for axis in "xyz"]]
        valid = valid_returns(places)
        whole = bool(valid.all())
        for number, name in enumerate(self.columns.names):
            numbers = values[:, number] if whole else values[valid, number]
            finite = np.isfinite(numbers)
            if not finite.all():
                numbers = numbers[finite]
            if not len(numbers):
                continue
            low, high = self._found.get(name, (float("inf"), -float("inf")))
            self._found[name] = min(low, float(numbers.min())), max(high, float(numbers.max()))
            if meant(name) in _WHOLE and name not in self._fractions:
                fractions = numbers[np.round(numbers) != numbers]
                if len(fractions):
                    self._fractions[name] = float(fractions[0])

    @property
    def bytes_(self) -> frozenset[str]:
        """Columns of colours that are bytes which became other numbers; others are shares."""
        return frozenset(n for n, (_, top) in self._found.items() if meant(n) in COLORS and top > 1)

    def problems(self) -> list[tuple[str, str]]:
        """Columns whose numbers are not what their names say, and what these numbers are.

        Coordinates lie within 10,000 km, intensity in 0..65535, colours in 0..255, rings and labels
        are whole. Columns of other names are not looked at.
        """
        found = []
        for name, (low, high) in self._found.items():
            kind = meant(name)
            top = _COORDINATE if kind in ("x", "y", "z") else _LARGEST.get(kind)
            least = -_COORDINATE if kind in ("x", "y", "z") else 0.0
            if kind == LABEL:
                least, top = -_LABEL, _LABEL
            if top is not None and not least <= low <= high <= top:
                found.append((name, f"numbers from {low:.4g} to {high:.4g}"))
            elif name in self._fractions:
                found.append(
                    (name, f"numbers that are not whole, such as {self._fractions[name]:.4g}")
                )
        return found


def problems(values: np.ndarray, columns: Columns) -> list[tuple[str, str]]:
    """`ColumnRanges.problems` of numbers [P, K]."""
    found = ColumnRanges(columns)
    found.add(values)
    return found.problems()


def advice(values: np.ndarray) -> str:
    """Which columns a file of float32 numbers seems to have, as the end of a message.

    Args:
        values: numbers of the file in their order, as `looked_at` takes them.
    """
    count = likely_columns(values)
    for name, columns in LAYOUTS.items():
        whole = values[: len(values) // len(columns) * len(columns)].reshape(-1, len(columns))
        if count != len(columns) or problems(whole, columns):
            continue
        colours = whole[:, 3:]
        bytes_ = np.array_equal(np.round(colours), colours) and colours.max(initial=0) > 1
        if (name == "scannet" and not bytes_) or (name == "sunrgbd" and not (colours <= 1).all()):
            continue
        likely = f"{columns} of {name}" if name != "scannet" else f"{columns} of ScanNet or S3DIS"
        return f"; it looks like {likely}: --columns {name} (dataset.columns={name})"
    if count is None:
        return "; name its columns: --columns x,y,z,intensity,... (dataset.columns=[x,y,z,...])"
    return (
        f"; it looks like {count} numbers a point: name them, as in --columns "
        f"{','.join(('x', 'y', 'z', 'intensity', 'ring', 'time', 'label', '_', '_', '_')[:count])} "
        "(dataset.columns=[x,y,z,...])"
    )


_BYTES = 4


def read_bin(path: Path, columns: Columns | None = None, limit: float = LIMIT) -> PointTable:
    """Read a whole file of float32 numbers, as `open_bin`.

    Args:
        path: the file.
        columns: names of its columns.
        limit: its largest size [GiB].

    Returns:
        Its points, missing returns among them.
    """
    check_size(path, path.stat().st_size, limit)
    found = open_bin(path, columns)
    return found.part(0, len(found))


def open_bin(path: Path, columns: Columns | None = None) -> RowTable:
    """Open a file of float32 numbers of any size.

    Args:
        path: the file.
        columns: names of its columns; None: those of nuScenes for ``NAME.pcd.bin``, else those of
            KITTI, if the numbers agree with them.

    Raises:
        FileError: a size that holds no whole number of points, numbers that a column cannot
            hold, or that belong to another number of columns; the message names the likely ones.
    """
    given = columns is not None
    if columns is None:
        columns = LAYOUTS["nuscenes" if path.name.lower().endswith(".pcd.bin") else "kitti"]
    stamp = stamp_of(path)
    size, number = stamp[0], np.dtype("<f4")
    sample = looked_at(StoredRows(path, 0, number, size // _BYTES, (), stamp))
    width = _BYTES * len(columns)
    if size % width:
        # a torn file of these columns still looks like them
        torn = given or size % _BYTES or not is_contradicted(sample, len(columns))
        raise FileError(
            path,
            f"{size} bytes are not a whole number of {width}-byte points (float32 {columns})"
            + ("; truncated?" if torn else advice(sample)),
        )
    if not given and is_contradicted(sample, len(columns)):
        raise FileError(path, f"the numbers are not those of columns {columns}{advice(sample)}")
    rows = StoredRows(path, 0, number, size // width, (len(columns),), stamp)
    try:
        return plain_rows(path, rows, columns)
    except FileError as error:
        raise FileError(path, error.rule + ("" if given else advice(sample))) from error

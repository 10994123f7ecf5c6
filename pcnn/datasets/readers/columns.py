"""Files of bare numbers: which columns they have, and whether the numbers agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.datasets.readers.table import COLORS, PointTable, meant, valid_returns
from pcnn.errors import FileError
from pcnn.files.bounded import LIMIT, check_size

COUNTS = range(3, 11)

_BINS = 32
_PERIOD = 2520  # a multiple of all counts: parts that begin at its multiples keep the columns
_PARTS = 6
_LEAST = 256  # numbers; fewer say nothing
_LEAST_NATS = 0.1
_TIMES = 2.0


def likely_columns(values: np.ndarray) -> int | None:
    """Number of columns that carries most information about the numbers.

    In the right number of columns the distributions differ from column to column; in a wrong number
    every column mixes them all. With q the share of numbers in a bin and q_k that of column k, the
    mutual information of column and number is ``mean_k sum q_k log(q_k / q)``.

    Args:
        values: [N] numbers in the order of the file.

    Returns:
        The smallest of 3..10 with 95 % of the largest information; None where there is none.
    """
    found = information_by_columns(values)
    most = max(found.values(), default=0.0)
    if most < _LEAST_NATS:
        return None
    return min(count for count, nats in found.items() if nats >= 0.95 * most)


def is_contradicted(values: np.ndarray, count: int) -> bool:
    """True where another number of columns carries more than twice the information of this one.

    Scans of KITTI have 0.8 nats in 4 columns and 0.25 in 6; files of 5 or 6 columns have at most
    0.13 in 4 and 0.7 or more in their own. Twice as many columns seldom have twice as much: points
    of two rows each look like two lasers that fire in turn.
    """
    found = information_by_columns(values)
    return bool(found) and max(found.values()) > _TIMES * found[count] + _LEAST_NATS


def information_by_columns(values: np.ndarray) -> dict[int, float]:
    """Mutual information [nats] of column and number for every count, without its bias.

    The bias of sampling, ``(bins - 1)(columns - 1) / 2N``, is taken off. At most six parts of the
    file are looked at. Empty for fewer than 256 numbers.
    """
    if len(values) < _LEAST:
        return {}
    bins = _binned(_looked_at(values))
    return {count: _information(bins, count) for count in COUNTS}


def _looked_at(values: np.ndarray) -> np.ndarray:
    """Parts of the numbers that begin where a row does, in any number of columns."""
    blocks = len(values) // _PERIOD
    if blocks <= _PARTS:
        return values
    starts = np.linspace(0, blocks - 1, _PARTS).astype(np.int64) * _PERIOD
    return np.concatenate([values[start : start + _PERIOD] for start in starts])


def _binned(values: np.ndarray) -> np.ndarray:
    """Bins of about as many numbers each; the last is for NaN and infinite numbers."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(len(values), _BINS)
    edges = np.unique(np.quantile(values[finite], np.linspace(0, 1, _BINS + 1)[1:-1]))
    return np.where(finite, np.searchsorted(edges, values, side="right"), _BINS)


def _information(bins: np.ndarray, count: int) -> float:
    n = len(bins) // count * count
    places = bins[:n].reshape(-1, count) + np.arange(count) * (_BINS + 1)
    table = np.bincount(places.reshape(-1), minlength=count * (_BINS + 1))
    joint = table.reshape(count, _BINS + 1) / n  # [columns, bins]
    alone = joint.sum(axis=0) / count
    filled = joint > 0
    ratio = joint[filled] / np.broadcast_to(alone, joint.shape)[filled]
    bias = (np.count_nonzero(alone) - 1) * (count - 1) / (2 * n)
    return float((joint[filled] * np.log(ratio)).sum() - bias)


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
    """Columns of numbers, each checked against what its name means.

    Args:
        path: the file, for errors.
        values: [P, K] numbers.
        columns: K names.

    Raises:
        FileError: another number of columns, or numbers that a column cannot hold.
    """
    if values.ndim != 2 or values.shape[1] != len(columns):
        raise FileError(
            path, f"found numbers {list(values.shape)}; columns {columns} name {len(columns)}"
        )
    for name, problem in problems(values, columns):
        raise FileError(
            path, f"column {name} of {columns} holds {problem}; name the columns that it has"
        )
    place = {name: number for number, name in enumerate(columns.names)}

    def column(name: str) -> np.ndarray:
        found = values[:, place[name]]
        # colours are bytes that became float32, or shares
        bright = meant(name) in COLORS and (found > 1).any()
        return found / found.dtype.type(255) if bright else found

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


def problems(values: np.ndarray, columns: Columns) -> list[tuple[str, str]]:
    """Columns whose numbers are not what their names say, and what these numbers are.

    Coordinates lie within 10,000 km, intensity in 0..65535, colours in 0..255, rings and labels are
    whole. Missing returns, and columns of other names, are not looked at.
    """
    places = values[:, [columns.names.index(axis) for axis in "xyz"]]
    valid = valid_returns(places)
    whole = bool(valid.all())
    found = []
    for number, name in enumerate(columns.names):
        numbers = values[:, number] if whole else values[valid, number]
        finite = np.isfinite(numbers)
        if not finite.all():
            numbers = numbers[finite]
        if not len(numbers):
            continue
        kind = meant(name)
        low, high = float(numbers.min()), float(numbers.max())
        top = _COORDINATE if kind in ("x", "y", "z") else _LARGEST.get(kind)
        least = -_COORDINATE if kind in ("x", "y", "z") else 0.0
        if kind == LABEL:
            least, top = -_LABEL, _LABEL
        if top is not None and not least <= low <= high <= top:
            found.append((name, f"numbers from {low:.4g} to {high:.4g}"))
        elif kind in _WHOLE and not np.array_equal(np.round(numbers), numbers):
            found.append((name, f"numbers that are not whole, such as {numbers[0]:.4g}"))
    return found


def advice(values: np.ndarray) -> str:
    """Which columns a file of float32 numbers seems to have, as the end of a message.

    Args:
        values: all numbers of the file in their order.
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
    """Read a file of float32 numbers.

    Args:
        path: the file.
        columns: names of its columns; None: those of nuScenes for ``NAME.pcd.bin``, else those of
            KITTI, if the numbers agree with them.
        limit: its largest size [GiB].

    Returns:
        Its points, missing returns among them.

    Raises:
        FileError: a size that holds no whole number of points, numbers that a column cannot
            hold, or that belong to another number of columns; the message names the likely ones.
    """
    given = columns is not None
    if columns is None:
        columns = LAYOUTS["nuscenes" if path.name.lower().endswith(".pcd.bin") else "kitti"]
    size = path.stat().st_size
    check_size(path, size, limit)
    values = np.fromfile(path, dtype="<f4")
    width = _BYTES * len(columns)
    if size % width:
        # a torn file of these columns still looks like them
        torn = given or size % _BYTES or not is_contradicted(values, len(columns))
        raise FileError(
            path,
            f"{size} bytes are not a whole number of {width}-byte points (float32 {columns})"
            + ("; truncated?" if torn else advice(values)),
        )
    if not given and is_contradicted(values, len(columns)):
        raise FileError(path, f"the numbers are not those of columns {columns}{advice(values)}")
    try:
        return plain_table(path, values.reshape(-1, len(columns)), columns)
    except FileError as error:
        raise FileError(path, error.rule + ("" if given else advice(values))) from error

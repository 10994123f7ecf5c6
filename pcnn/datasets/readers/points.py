"""Columns of point clouds from files of all formats, and the labels of a cloud."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from pcnn.datasets.readers import las
from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.columns import LAYOUTS, columns_named, open_bin, plain_rows
from pcnn.datasets.readers.label_files import label_files, read_label_file
from pcnn.datasets.readers.pcd import open_pcd, pcd_column, pcd_names, read_pcd_names
from pcnn.datasets.readers.plain_files import read_npz_points, read_txt
from pcnn.datasets.readers.ply import open_ply, read_ply_header
from pcnn.datasets.readers.table import (
    PointTable,
    RowTable,
    missing_axes,
    places_of,
)
from pcnn.errors import FileError, MissingFileError
from pcnn.files.arrays import open_npy, read_npy
from pcnn.files.bounded import check_size, named

SUFFIXES = (".bin", ".npy", ".pcd", ".ply", *las.SUFFIXES)
#: Of texts, whatever they are called.
_TEXTS = (".txt", ".xyz", ".csv", ".asc")
#: Of clouds that are taken where they are named; in a folder such files may be anything else.
ALSO = (".npz", *_TEXTS)

_LABELS = ("label", "class", "scalar_label", "scalar_class")
_PLAIN = Reading()
MISSING = "missing returns (NaN or infinite numbers, or at (0, 0, 0))"


def strict_rule(valid: np.ndarray, first: int = 0) -> str:
    """Why a cloud is refused where missing returns are.

    Args:
        valid: [P] bool, False where a row is none.
        first: number of the first of these rows in the file.
    """
    return (
        f"{int((~valid).sum())} of {len(valid)} points are {MISSING}, "
        f"the first is point {first + int((~valid).argmax())}; they are left out unless --strict "
        "or dataset.strict=true refuses them"
    )


def read_table(path: Path, reading: Reading = _PLAIN) -> PointTable:
    """Read all rows of a file, missing returns among them."""
    if not path.is_file():
        raise MissingFileError(path, "no such file")
    suffix = path.suffix.lower()
    with named(path, f"{suffix} file"):
        if suffix in _WHOLE:
            return _WHOLE[suffix](path, reading)
        if suffix in _OPENED:
            check_size(path, path.stat().st_size, reading.max_gib)
        found = open_table(path, reading)
        return found.part(0, len(found))


def open_table(path: Path, reading: Reading = _PLAIN) -> RowTable:
    """Open a ``.bin``, ``.npy``, ``.ply`` or ``.pcd`` file of any size, to read ranges of its rows.

    Text, packed data and arrays in Fortran's order are held whole, within ``reading.max_gib``.
    """
    if not path.is_file():
        raise MissingFileError(path, "no such file")
    suffix = path.suffix.lower()
    if suffix not in _OPENED:
        known = ", ".join((*_OPENED, *_WHOLE))
        raise FileError(path, f"a cloud ends in {known}, not {path.suffix!r}")
    with named(path, f"{suffix} file"):
        return _OPENED[suffix](path, reading)


def label_source(path: Path) -> Path | None:
    """Return the file that labels a cloud, which may be the cloud itself; None if there is none.

    The files of `label_files` are looked for; they win over the own property of a PLY or PCD
    file and over the classes of a LAS file, which are always there.

    Raises:
        FileError: several files label it, or its header breaks the format.
    """
    files = label_files(path)
    if len(files) > 1:
        raise FileError(path, f"both {files[0]} and {files[1]} label it; keep one")
    if files:
        return files[0]
    if path.suffix.lower() in las.SUFFIXES:
        return path
    names: tuple[str, ...] = ()
    if path.suffix.lower() == ".ply":
        names = read_ply_header(path).names
    elif path.suffix.lower() == ".pcd":
        names = read_pcd_names(path)
    return path if _label_field(names) else None


def read_labels(path: Path, n_points: int) -> np.ndarray:
    """Read labels beside a cloud.

    Args:
        path: ``.label`` (one 4-byte word a point: class below, instance above; all ones is -1) or
            ``.npy`` ([P] integers).
        n_points: points of the cloud's file, missing returns among them.

    Returns:
        [P] int64.

    Raises:
        FileError: another count than the cloud's, or another kind of array.
    """
    if path.suffix == ".label":
        words = read_label_file(path, n_points)
        return np.where(words == 0xFFFFFFFF, -1, (words & 0xFFFF).astype(np.int64))
    labels = read_npy(path)
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (n_points,):
        raise FileError(
            path, f"labels must be {n_points} integers, found {labels.dtype} {list(labels.shape)}"
        )
    return labels.astype(np.int64)


def is_label_file(path: Path) -> bool:
    """True for an ``.npy`` file of labels, or of their confidence, not points."""
    return path.suffix == ".npy" and path.stem.endswith(("_label", "_confidence"))


def is_cloud_file(path: Path) -> bool:
    """True where the name of a file is that of a cloud."""
    return path.suffix.lower() in SUFFIXES and not is_label_file(path)


def _label_field(names: tuple[str, ...]) -> str | None:
    """The field that holds labels, in any case."""
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in _LABELS if name in lower), None)


def _bin(path: Path, reading: Reading) -> RowTable:
    return open_bin(path, None if reading.columns is None else columns_named(reading.columns))


def _npy(path: Path, reading: Reading) -> RowTable:
    rows = open_npy(path, reading.max_gib)
    if rows.kind.names:
        return RowTable(path, rows, partial(_structured, path))
    shape = rows.read(0, 0).shape[1:]
    if len(shape) != 1 or shape[0] < 3 or rows.kind.kind not in "fiu":
        raise FileError(
            path,
            f"points must be numbers [N, 3 or more], found {rows.kind} {[len(rows), *shape]}",
        )
    if reading.columns is not None:
        return plain_rows(path, rows, columns_named(reading.columns))
    return RowTable(path, rows, partial(_unnamed, path))


def _unnamed(path: Path, values: np.ndarray) -> PointTable:
    """Points whose further columns have no names."""
    kitti = LAYOUTS["kitti"].names[3:]
    names = tuple(f"column{number}" for number in range(3, values.shape[1]))
    names = kitti if len(names) == len(kitti) else names
    return PointTable(
        path,
        values[:, :3],
        names,
        lambda name: values[:, 3 + names.index(name)],
        unnamed=True,
    )


def _ply(path: Path, reading: Reading) -> RowTable:
    return RowTable(path, open_ply(path, reading.max_gib), partial(_structured, path))


def _structured(path: Path, points: np.ndarray) -> PointTable:
    """Points whose columns are the fields of an array."""
    names = points.dtype.names or ()
    missing = missing_axes(names)
    if points.ndim != 1 or missing:
        raise FileError(path, f"points need fields x, y, z; found {', '.join(names)}")
    for name in names:
        if points.dtype[name].base.kind not in "fiub":
            raise FileError(path, f"property {name} holds {points.dtype[name]}, no numbers")
        if points.dtype[name].shape and name.lower() in ("x", "y", "z", *_LABELS):
            raise FileError(path, f"property {name} holds several numbers a point")
    return PointTable(path, places_of(points), names, points.__getitem__, _own_labels(path, points))


def _own_labels(path: Path, points: np.ndarray) -> np.ndarray | None:
    field = _label_field(points.dtype.names or ())
    if field is None:
        return None
    labels = points[field].astype(np.int64)
    if labels.ndim != 1 or not np.array_equal(labels, points[field]):
        raise FileError(path, f"property {field} must hold one whole number a point")
    return labels


def _pcd(path: Path, reading: Reading) -> RowTable:
    return RowTable(path, open_pcd(path, reading.max_gib), partial(_fields, path))


def _fields(path: Path, points: np.ndarray) -> PointTable:
    return PointTable(
        path,
        places_of(points),
        pcd_names(points),
        lambda name: pcd_column(points, name),
        _own_labels(path, points),
    )


def _las(path: Path, reading: Reading) -> PointTable:
    cloud = las.read_las(path, max_gib=reading.max_gib)
    return PointTable(
        path,
        cloud.places(),
        cloud.names,
        cloud.column,
        cloud.column("classification").astype(np.int64),
        intensity_max=las.FULL,
        in_map=True,
    )


def _txt(path: Path, reading: Reading) -> PointTable:
    return read_txt(path, reading.columns, reading.max_gib)


def _npz(path: Path, reading: Reading) -> PointTable:
    return read_npz_points(path, reading.max_gib)


#: Read in ranges of rows.
_OPENED: dict[str, Callable[[Path, Reading], RowTable]] = {
    ".bin": _bin,
    ".npy": _npy,
    ".pcd": _pcd,
    ".ply": _ply,
}
_WHOLE: dict[str, Callable[[Path, Reading], PointTable]] = {
    ".las": _las,
    ".laz": _las,
    ".npz": _npz,
    **dict.fromkeys(_TEXTS, _txt),
}

"""Fragments and scans without labels, in the file formats of all data sets."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.readers.clouds import SUFFIXES, Reading, read_points
from pcnn.datasets.readers.columns import rounded_points, valid_returns
from pcnn.errors import FileError, MissingFileError
from pcnn.files.arrays import names_in, read_npz
from pcnn.files.bounded import named
from pcnn.files.pickles import read_arrays
from pcnn.messages import counted
from pcnn.registration.local_frame import LocalCloud

#: In the order in which they are looked for.
FRAGMENT_SUFFIXES = (".pth", ".npz", *SUFFIXES)

_POSITIONS = Reading(channels=())


def read_fragment(path: Path) -> Tensor:
    """Points [P, 3] float32 of a file.

    * ``.pth``: an array [P, 3] saved by torch (Predator), float32 or float64, or a tensor.
    * ``.npz``: the array ``pcd`` [P, 3] (FCGF); ``points`` and ``xyz`` are taken too.
    * others as `pcnn.datasets.readers.clouds.read_points`.

    Nothing in a ``.pth`` is run: it may hold arrays, tensors and plain values alone.
    """
    path = Path(path)
    with named(path, f"{path.suffix} file"):
        values = _plain_content(path)
        if values is not None:
            return checked_points(values, path)
        return read_points(path, reading=_POSITIONS).points


def read_local(path: Path, columns: tuple[str, ...] | None = None) -> LocalCloud:
    """A cloud of a file as `read_fragment`, moved near zero where it lies on a map.

    Rows without a return are left out and counted. Origin and `columns` are those of
    `pcnn.datasets.readers.clouds.Reading`.
    """
    path = Path(path)
    # transforms hold for the coordinates of the file, whatever their unit
    reading = replace(_POSITIONS, centred=True, columns=columns, scale=1.0)
    with named(path, f"{path.suffix} file"):
        values = _plain_content(path)
        if values is not None:
            return local_points(values, path)
        cloud = read_points(path, reading=reading)
        origin = torch.tensor(cloud.origin, dtype=torch.float64)
        valid = torch.from_numpy(valid_returns((cloud.points.double() + origin).numpy()))
        kept = cloud.points[valid]
        return _with_points(kept, origin, cloud.n_points_total, path)


def local_points(values: Any, name: object) -> LocalCloud:
    """An array or tensor [P, 3] as `read_local` has a file."""
    array = _numbers(values, name)
    array = array[valid_returns(array)]
    origin = Reading(centred=True).origin(array, in_map=False)
    moved = array - origin if origin.any() else array
    kept = torch.from_numpy(rounded_points(moved, name))
    return _with_points(kept, torch.from_numpy(origin), len(values), name)


def _with_points(points: Tensor, origin: Tensor, rows: int, name: object) -> LocalCloud:
    if len(points):
        return LocalCloud(points, origin, rows - len(points))
    if rows:
        raise ValueError(
            f"{name}: the cloud is empty: {counted(rows, 'row')} without a return (NaN or zeros)"
        )
    raise ValueError(f"{name}: the cloud is empty")


def _plain_content(path: Path) -> Any:
    """Content of a file of arrays; None where `read_points` reads the format."""
    if not path.is_file():
        raise MissingFileError(path, "no such file")
    if path.suffix == ".pth":
        return read_arrays(path)
    if path.suffix == ".npz":
        return _read_npz(path)
    return None


def checked_points(values: Any, origin: object) -> Tensor:
    """Points as [P, 3] float32."""
    array = _numbers(values, origin)
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{origin}: {int(bad.sum())} of {len(array)} points hold NaN or infinite numbers, the "
            f"first is point {int(bad.argmax())}"
        )
    return torch.from_numpy(rounded_points(array, origin))


def _numbers(values: Any, origin: object) -> np.ndarray:
    if not isinstance(values, np.ndarray | Tensor):
        raise ValueError(f"{origin}: must be an array [P, 3], found {type(values).__name__}")
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{origin}: points must be numbers [P, 3], found {array.dtype} {list(array.shape)}"
        )
    return array


def find_fragment(folder: Path, stem: str) -> Path:
    """The file of a fragment, whatever its suffix."""
    for suffix in FRAGMENT_SUFFIXES:
        path = folder / (stem + suffix)
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder}: no {stem} ({', '.join(FRAGMENT_SUFFIXES)})")


def numbered_fragments(folder: Path) -> dict[int, Path]:
    """Clouds of a folder by the last number in their names, in rising order."""
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*")):
        if path.suffix not in FRAGMENT_SUFFIXES or not path.is_file():
            continue
        numbers = re.findall(r"\d+", path.stem)
        if not numbers:
            raise ValueError(f"{path}: the name of a fragment holds its number, as cloud_bin_7")
        if int(numbers[-1]) in found:
            raise ValueError(f"{found[int(numbers[-1])]} and {path} have the same number")
        found[int(numbers[-1])] = path
    if not found:
        raise FileNotFoundError(f"{folder}: no cloud ({', '.join(FRAGMENT_SUFFIXES)}) is here")
    return dict(sorted(found.items()))


def _read_npz(path: Path) -> np.ndarray:
    for name in ("pcd", "points", "xyz"):
        found = read_npz(path, (name,))
        if found:
            return found[name]
    held = ", ".join(names_in(path))
    raise FileError(path, f"no array pcd, points or xyz; the file holds {held or 'nothing'}")

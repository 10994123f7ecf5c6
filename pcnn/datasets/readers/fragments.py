"""Fragments and scans without labels, in the file formats of all data sets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.readers.clouds import SUFFIXES, Reading, read_points
from pcnn.datasets.readers.columns import rounded_points, valid_returns
from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.pickles import array_of, read_arrays
from pcnn.messages import counted
from pcnn.registration.transforms import LocalCloud

#: In the order in which they are looked for.
FRAGMENT_SUFFIXES = (".pth", *SUFFIXES)


def read_fragment(path: Path) -> Tensor:
    """Points [P, 3] float32 of a file."""
    with named(path, f"{path.suffix} file"):
        if path.suffix != ".pth":
            return read_points(path, reading=Reading(channels=())).points
        array = _numbers(read_arrays(path), path)
        if not np.isfinite(array).all():
            raise ValueError("points hold NaN or infinite numbers")
        return torch.from_numpy(rounded_points(array, path))


def read_local(path: Path, columns: tuple[str, ...] | None = None) -> LocalCloud:
    """A cloud of a file as `read_fragment`, moved near zero where it lies on a map."""
    path = Path(path)
    with named(path, f"{path.suffix} file"):
        if path.suffix == ".pth":
            return local_points(read_arrays(path), path)
        reading = Reading(channels=(), centred=True, columns=columns)
        cloud = read_points(path, reading=reading)
        origin = torch.tensor(cloud.origin, dtype=torch.float64)
        if not cloud.n_points:
            raise FileError(path, "the cloud is empty")
        return LocalCloud(cloud.points, origin, cloud.n_points_total - cloud.n_points)


def local_points(values: Any, name: object) -> LocalCloud:
    """An array or tensor [P, 3] as `read_local` has a file."""
    whole = _numbers(values, name)
    array = whole[valid_returns(whole)]
    if not len(array):
        raise ValueError(f"{name}: the cloud is empty; it has {counted(len(whole), 'row')}")
    origin = Reading(centred=True).origin(array, in_map=False)
    moved = array - origin if origin.any() else array
    points = torch.from_numpy(rounded_points(moved, name))
    return LocalCloud(points, torch.from_numpy(origin), len(whole) - len(array))


def _numbers(values: Any, origin: object) -> np.ndarray:
    array = array_of(values)
    if array is None or array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        found = type(values).__name__ if array is None else f"{array.dtype} {list(array.shape)}"
        raise ValueError(f"{origin}: points must be numbers [P, 3], found {found}")
    return array


def find_fragment(folder: Path, stem: str) -> Path:
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
        if not numbers or int(numbers[-1]) in found:
            raise ValueError(f"{path}: a fragment has a number of its own, as cloud_bin_7")
        found[int(numbers[-1])] = path
    if not found:
        raise FileNotFoundError(f"{folder}: no cloud ({', '.join(FRAGMENT_SUFFIXES)}) is here")
    return dict(sorted(found.items()))

"""Fragments and scans, in whatever file their data set keeps them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.channels import Reading
from pcnn.datasets.point_files import SUFFIXES, read_points
from pcnn.datasets.returns import valid_returns
from pcnn.datasets.rounding import rounded_points
from pcnn.plural import counted
from pcnn.registration.local_frame import LocalCloud

#: In the order in which they are looked for.
FRAGMENT_SUFFIXES = (".pth", ".npz", *SUFFIXES)

_POSITIONS = Reading(channels=())


def read_fragment(path: Path) -> Tensor:
    """Points [P, 3] float32 of a file.

    * ``.pth``: an array [P, 3] saved by torch (Predator), float32 or float64, or a tensor.
    * ``.npz``: the array ``pcd`` [P, 3] (FCGF); ``points`` and ``xyz`` are taken too.
    * others as `pcnn.datasets.point_files.read_points`.

    Nothing in a ``.pth`` is run: it may hold arrays, tensors and plain values alone.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another content, NaN or infinite numbers; the message names the file.
    """
    path = Path(path)
    values = _plain_content(path)
    if values is not None:
        return checked_points(values, path)
    return read_points(path, reading=_POSITIONS).points


def read_local(path: Path, columns: tuple[str, ...] | None = None) -> LocalCloud:
    """A cloud of a file as `read_fragment`, moved near zero where it lies on a map.

    Rows without a return (`pcnn.datasets.returns`) are left out and counted. The origin is that of
    `pcnn.datasets.channels.Reading.origin`.

    Args:
        path: the file.
        columns: as of `pcnn.datasets.channels.Reading`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another content, or no point in it; the message names the file.
    """
    path = Path(path)
    values = _plain_content(path)
    if values is not None:
        return local_points(values, path)
    cloud = read_points(path, reading=replace(_POSITIONS, centred=True, columns=columns))
    origin = torch.tensor(cloud.origin, dtype=torch.float64)
    valid = torch.from_numpy(valid_returns((cloud.points.double() + origin).numpy()))
    kept = cloud.points[valid]
    return _with_points(kept, origin, cloud.n_points_total, path)


def local_points(values: Any, name: object) -> LocalCloud:
    """An array or tensor [P, 3] as `read_local` has a file.

    Raises:
        ValueError: not numbers [P, 3], or no point among them; the message starts with `name`.
    """
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
    """What a file of arrays holds; None where `read_points` reads the format.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.suffix == ".pth":
        return _read_pth(path)
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path}: a cloud ends in {', '.join(FRAGMENT_SUFFIXES)}, not {path.suffix!r}"
        )
    return None


def checked_points(values: Any, origin: object) -> Tensor:
    """Points as [P, 3] float32.

    Args:
        values: an array or tensor.
        origin: the file, or what the points are called in messages.

    Raises:
        ValueError: not numbers [P, 3], NaN or infinite ones, or as `rounded_points`.
    """
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
    """The file of a fragment, whatever its suffix.

    Raises:
        FileNotFoundError: none.
    """
    for suffix in FRAGMENT_SUFFIXES:
        path = folder / (stem + suffix)
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder}: no {stem} ({', '.join(FRAGMENT_SUFFIXES)})")


def numbered_fragments(folder: Path) -> dict[int, Path]:
    """Clouds of a folder by the last number in their names, in rising order.

    Raises:
        FileNotFoundError: no cloud.
        ValueError: a cloud without a number, or two with the same.
    """
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
    try:
        with np.load(path, allow_pickle=False) as data:
            for name in ("pcd", "points", "xyz"):
                if name in data:
                    return data[name]
            held = ", ".join(data.files)
    except (ValueError, OSError, EOFError, AttributeError) as error:
        raise ValueError(f"{path}: not a whole .npz file ({error})") from error
    raise ValueError(f"{path}: no array pcd, points or xyz; the file holds {held or 'nothing'}")


def _read_pth(path: Path) -> Any:
    with numpy_arrays_allowed():
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ValueError(f"{path}: no .pth file of torch, or more than arrays in it") from error
        except (RuntimeError, EOFError, KeyError) as error:
            raise ValueError(f"{path}: a torn .pth file ({error})") from error


@contextmanager
def numpy_arrays_allowed() -> Iterator[None]:
    """Let `torch.load(weights_only=True)` rebuild numpy arrays, which older files consist of."""
    empty = np.empty(0)
    rebuild, arguments = empty.__reduce__()[0], (np.ndarray, np.dtype)
    kinds = {type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "u1")}
    # files of numpy 1 name the module without its underscore
    old = "numpy.core.multiarray._reconstruct"
    allowed: list[Any] = [*arguments, *kinds, rebuild, (rebuild, old)]
    with torch.serialization.safe_globals(allowed):
        yield

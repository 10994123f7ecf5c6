"""Fragments and scans, in whatever file their data set keeps them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.point_files import SUFFIXES, read_points
from pcnn.datasets.rounding import rounded_points

#: In the order in which they are looked for.
FRAGMENT_SUFFIXES = (".pth", ".npz", *SUFFIXES)


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
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    if path.suffix == ".pth":
        return checked_points(_read_pth(path), path)
    if path.suffix == ".npz":
        return checked_points(_read_npz(path), path)
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"{path}: a cloud ends in {', '.join(FRAGMENT_SUFFIXES)}, not {path.suffix!r}"
        )
    return read_points(path).points


def checked_points(values: Any, origin: object) -> Tensor:
    """Points as [P, 3] float32.

    Args:
        values: an array or tensor.
        origin: the file, or what the points are called in messages.

    Raises:
        ValueError: not numbers [P, 3], NaN or infinite ones, or as `rounded_points`.
    """
    if not isinstance(values, np.ndarray | Tensor):
        raise ValueError(f"{origin}: want an array [P, 3], found {type(values).__name__}")
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{origin}: points must be numbers [P, 3], found {array.dtype} {list(array.shape)}"
        )
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{origin}: {int(bad.sum())} of {len(array)} points hold NaN or infinite numbers, the "
            f"first is point {int(bad.argmax())}"
        )
    return torch.from_numpy(rounded_points(array, origin))


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
    raise ValueError(f"{path}: want an array pcd, points or xyz; it holds {held or 'nothing'}")


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

"""Clouds of native points: read from files, with the grid they were thinned to."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

#: A name that ends in its grid in hundredths of a metre, as ``kitti005`` and ``s3dis002`` do.
NAMED_GRID = re.compile(r"(\d)(\d\d)$")


@dataclass(frozen=True, eq=False)
class Cloud:
    """A named cloud.

    Args:
        name: what result rows call it.
        points: ``[P, 3]`` float32 [m].
        grid_size: edge of a cell [m].
    """

    name: str
    points: Tensor
    grid_size: float

    def to(self, device: torch.device) -> Cloud:
        """The cloud on another device."""
        return Cloud(self.name, self.points.to(device), self.grid_size)


def load_clouds(word: str) -> list[Cloud]:
    """Clouds of ``file.npz``, of one array of it (``file.npz:name``), each on its grid.

    The grid [m] follows after ``@``, or the name of an array ends in it, in hundredths of a metre:
    ``kitti005``.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a file of clouds, no such array, or a grid that nobody knows.
    """
    place, _, size = word.partition("@")
    path, _, key = place.partition(":")
    if not Path(path).is_file():
        raise FileNotFoundError(f"cloud {word}: no file {path}")
    try:
        with np.load(path) as content:
            arrays = {name: content[name] for name in content if not key or name == key}
    except (ValueError, OSError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(f"cloud {word}: not an .npz file of points ({error})") from error
    if not arrays:
        raise ValueError(f"cloud {word}: the file has no array {key}")
    return [_cloud(name, array, _grid(name, size)) for name, array in arrays.items()]


def _grid(name: str, size: str) -> float:
    named = NAMED_GRID.search(name)
    if not size and named is None:
        raise ValueError(
            f"cloud {name}: no grid; give it as file.npz:{name}@0.05 [m], or name the array after "
            "it, as kitti005"
        )
    text = size if size or named is None else f"{named[1]}.{named[2]}"
    try:
        grid = float(text)
    except ValueError as error:
        raise ValueError(f"cloud {name}: the grid must be a number [m], got {text}") from error
    if not 0 < grid < float("inf"):
        raise ValueError(f"cloud {name}: the grid must be positive [m], got {text}")
    return grid


def _cloud(name: str, points: np.ndarray, grid: float) -> Cloud:
    if points.ndim != 2 or points.shape[1] < 3 or points.dtype.kind != "f" or not len(points):
        raise ValueError(
            f"cloud {name}: points must be floats [P, 3 or more], got {points.dtype} "
            f"{list(points.shape)}"
        )
    places = np.ascontiguousarray(points[:, :3], dtype=np.float32)
    return Cloud(name, torch.from_numpy(places), grid)

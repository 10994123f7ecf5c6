"""Clouds of native points: read from files, with the grid they were thinned to, or simulated rooms.

A simulated room stands in for a scan of one. It is floor, ceiling, four walls and boxes of
furniture; its points lie on these surfaces with a little noise, one in every cell of the grid, as
preliminary downsampling leaves them. Larger clouds are the same rooms at a finer grid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pcnn.errors import UserError
from pcnn.files.arrays import read_npz

#: Follows the name of a generated room in result rows.
SIMULATED = " (simulated)"
#: Points on a face of a cell that lies in a surface: so a kernel of 3^3 finds 9 neighbours, as on
#: the S3DIS room that the official code was timed on.
FILLED = 0.83
#: Points drawn for one that is kept: surfaces lie askew and meet about 1.5 cells a face.
DRAWN = 1.4
#: Points aimed at for one that is wanted; what is too many goes.
SPARE = 1.25
#: Noise of a point along every axis, in cells.
NOISE = 0.1
#: Points drawn at once, to bound memory.
CHUNK = 1 << 24


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
        ValueError: not a file of clouds, no such array, or an unknown grid.
    """
    place, _, size = word.partition("@")
    path, _, key = place.partition(":")
    if not Path(path).is_file():
        raise FileNotFoundError(f"cloud {word}: no file {path}")
    try:
        arrays = read_npz(Path(path), [key] if key else None)
    except UserError as error:
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


def room(number: int, points: int, device: torch.device) -> Cloud:
    """Room of a number with about so many points, in no order.

    Args:
        number: decides shape, furniture and noise.
        points: wanted; rooms of a few thousand have up to a fifth less.
        device: where they are drawn, and stay.
    """
    corners, first, second = (torch.from_numpy(part).to(device) for part in surfaces(number))
    areas = torch.linalg.cross(first, second).norm(dim=1)  # [S], m^2
    area = float(areas.sum())
    grid = (FILLED * area / (SPARE * points)) ** 0.5
    random = torch.Generator(device).manual_seed(number)
    ends = areas.cumsum(0) / area
    kept = torch.empty(0, 3, device=device)
    left = int(DRAWN * SPARE * points)
    while left > 0:
        count = min(left, CHUNK)
        left -= count
        shares = torch.rand(count, 3, generator=random, device=device, dtype=torch.float64)
        surface = torch.searchsorted(ends, shares[:, 2].contiguous()).clamp_(max=len(ends) - 1)
        drawn = corners[surface] + shares[:, :1] * first[surface] + shares[:, 1:2] * second[surface]
        noise = torch.randn(count, 3, generator=random, device=device)
        kept = _one_per_cell(
            torch.cat([kept, drawn.to(torch.float32) + NOISE * grid * noise]), grid
        )
    order = torch.randperm(len(kept), generator=random, device=device)[:points]
    return Cloud(f"room{number}@{size_name(points)}{SIMULATED}", kept[order], grid)


def size_name(points: int) -> str:
    """Number of points as names have it: ``20k``, ``1.5m``."""
    unit, letter = (1_000_000, "m") if points >= 1_000_000 else (1000, "k")
    return f"{points / unit:g}{letter}"


def _one_per_cell(points: Tensor, grid: float) -> Tensor:
    """The first point ``[N, 3]`` of every cell; float32 places, cells counted in float64."""
    cells = torch.floor(points.to(torch.float64) / grid).to(torch.int64)
    cells -= cells.amin(0)
    _, height, depth = (cells.amax(0) + 1).tolist()
    keys, order = ((cells[:, 0] * height + cells[:, 1]) * depth + cells[:, 2]).sort(stable=True)
    first = torch.ones_like(keys, dtype=torch.bool)
    torch.ne(keys[1:], keys[:-1], out=first[1:])
    return points[order[first]]


def surfaces(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corner and two edges ``[S, 3]`` [m] of every rectangle of a room turned about z."""
    random = np.random.default_rng(number)
    width, depth, height = random.uniform((4.0, 4.0, 2.5), (9.0, 7.0, 3.5))
    found = _box(np.zeros(3), (width, depth, height), 0.0)
    for _ in range(int(random.integers(10, 25))):
        size = random.uniform((0.3, 0.3, 0.3), (1.8, 1.0, min(2.2, height)))
        place = random.uniform((0.5, 0.5), (width - 1.0, depth - 1.0))
        turn = float(random.uniform(0, np.pi / 2))
        found += _box(np.array([*place, 0.0]), tuple(size), turn)[
            1:
        ]  # a scan does not see below it
    angle = float(random.uniform(0, np.pi / 2))
    turned = np.array(found) @ _turn(angle).T  # [S, 3 vectors, 3]
    corners, first, second = turned.transpose(1, 0, 2)
    return corners.copy(), first.copy(), second.copy()


def _box(place: np.ndarray, size: tuple[float, ...], angle: float) -> list[np.ndarray]:
    """Bottom, top and four sides of a box: each a corner and two edges, ``[3, 3]``."""
    x, y, z = np.diag(size) @ _turn(angle).T
    nothing = np.zeros(3)
    faces = ((nothing, x, y), (z, x, y), (nothing, x, z), (y, x, z), (nothing, y, z), (x, y, z))
    return [np.stack([place + start, first, second]) for start, first, second in faces]


def _turn(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])

"""Workloads: voxel scenes read from files, and generated ones for machines without files.

* A workload file is an ``.npz`` with ``coords``, ``[N, 4]`` integers (batch, x, y, z).
* A scan is a file of points [m]: ``.bin``, ``.npy``, ``.ply``, or an ``.npz`` with the points under
  ``points`` or under a name given after a colon, as ``clouds.npz:kitti005``. It becomes one scene a
  voxel size: a scan of growing size.
* Generated scenes are named ``surface_<n>k`` or ``random_<n>k``, for about ``n`` thousand voxels;
  ``box200_<n>k`` and ``box400_<n>k`` are uniform noise in a cube of that side, ``slab_<n>k`` of
  1.25 % in a box 200 cells high, as ``rand_1m`` and ``rand_2m`` are. All are stand-ins: a surface
  has the neighbourhoods of a scan roughly, a random cloud has not at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pcnn.datasets.readers.clouds import SUFFIXES, read_points
from pcnn.errors import UserError
from pcnn.files.arrays import names_in, read_npz
from pcnn.geometry import VoxelGrid, grid_of_cells, quantize
from pcnn.geometry.voxel_grid import DOWNSAMPLING

GENERATED = re.compile(r"(surface|random|box200|box400|slab)_([1-9][0-9]*)k")
#: Cells of a slab along x, y, z, and how many of them are filled.
SLABS = {"rand_1m": ((632, 632, 200), 1_000_000), "rand_2m": ((894, 894, 200), 2_000_000)}


#: Follows the name of a generated scene in result rows.
GENERATED_MARK = " (generated)"


@dataclass(frozen=True, eq=False)
class Scene:
    """A named voxel grid.

    Args:
        name: what result rows call it.
        grid: the voxels.
    """

    name: str
    grid: VoxelGrid


def load_scenes(workload: str, voxel_sizes: Sequence[float] = ()) -> list[Scene]:
    """Scenes of a workload: of a scan one for every voxel size [m], else one.

    Raises:
        FileNotFoundError: no such file, and no name of a generated scene either.
        ValueError: a file that is no workload, or a scan without voxel sizes.
    """
    path, _, key = workload.partition(":")
    points = _points(Path(path), key) if Path(path).is_file() else None
    if points is None or not (voxel_sizes or key):
        return [load_scene(workload)]
    if not voxel_sizes:
        raise ValueError(f"workload {workload} is a scan of points; give --voxel-sizes [m] too")
    name = key or Path(path).stem
    return [Scene(f"{name}@{size:g}", quantize(points, voxel_size=size)) for size in voxel_sizes]


def load_scene(workload: str) -> Scene:
    """Scene of a workload file, or of a generated scene's name.

    Raises:
        FileNotFoundError: no such file, and no name of a generated scene either.
        ValueError: a file that is no workload.
    """
    cells = _generated(workload)
    if cells is not None:
        return Scene(f"{workload}{GENERATED_MARK}", grid_of_cells(torch.from_numpy(cells)))
    path = Path(workload)
    if not path.is_file():
        raise FileNotFoundError(
            f"workload {workload}: no such file; give an .npz with coords [N, 4], or the name of a "
            "generated scene such as surface_20k or random_20k"
        )
    if path.suffix in SUFFIXES:
        raise ValueError(f"workload {workload} is a scan of points; give --voxel-sizes [m] too")
    return Scene(path.stem, _read(path))


#: Cells that a car has gone on before its next scan, along x and y.
AHEAD = (7, 2)


def aggregated(grid: VoxelGrid, scans: int) -> VoxelGrid:
    """A cloud as several scans of a driving car leave it: the scan, and moved copies of it.

    A stand-in for scans that follow each other: a moved copy meets the same surfaces elsewhere.

    Raises:
        ValueError: several clouds.
    """
    if grid.batch_size > 1:
        raise ValueError("this scene holds several clouds; scans are aggregated in one")
    cells = grid.coords[:, 1:]
    step = cells.new_tensor([*AHEAD, 0])
    return grid_of_cells(torch.cat([cells + number * step for number in range(scans)]))


def downsampled(scenes: Sequence[Scene], sites: str) -> list[Scene]:
    """Scenes whose strided layers have output sites by a rule.

    Args:
        scenes: as they were read.
        sites: ``floor`` or ``reached``.

    Raises:
        ValueError: another rule.
    """
    if sites not in DOWNSAMPLING:
        raise ValueError(f"{sites}: must be one of {', '.join(DOWNSAMPLING)}")
    return [replace(scene, grid=replace(scene.grid, downsampling=sites)) for scene in scenes]


def _generated(name: str) -> np.ndarray | None:
    if name in SLABS:
        return slab(*SLABS[name])
    match = GENERATED.fullmatch(name)
    if match is None:
        return None
    kind, thousands = match.groups()
    count = 1000 * int(thousands)
    if kind.startswith("box"):
        side = int(kind.removeprefix("box"))
        return slab((side, side, side), min(count, side**3))
    if kind == "slab":
        side = max(1, round((count / (0.0125 * 200)) ** 0.5))
        return slab((side, side, 200), count)
    return (surface if kind == "surface" else noise)(count)


def _points(path: Path, key: str) -> torch.Tensor | None:
    """Points ``[P, 3]`` of a scan, ``None`` if the file holds none."""
    if path.suffix in SUFFIXES:
        return read_points(path).points
    points = _array(path, key or "points", "points")
    if points is None and key:
        there = ", ".join(names_in(path))
        raise ValueError(
            f"workload {path}: no points in an .npz file (no array {key}; there are {there})"
        )
    if points is None:
        return None
    if points.ndim != 2 or points.shape[1] < 3 or points.dtype.kind != "f":
        raise ValueError(
            f"workload {path}: points must be floats [P, 3 or more], got {points.dtype} "
            f"{list(points.shape)}"
        )
    return torch.from_numpy(np.ascontiguousarray(points[:, :3]))


def _read(path: Path) -> VoxelGrid:
    coords = _array(path, "coords", "array coords")
    if coords is None:
        raise ValueError(f"workload {path}: no array coords in an .npz file")
    if coords.ndim != 2 or coords.shape[1] != 4 or coords.dtype.kind not in "iu":
        raise ValueError(
            f"workload {path}: coords must be integers [N, 4] (batch, x, y, z), got "
            f"{coords.dtype} {list(coords.shape)}"
        )
    voxels = torch.from_numpy(coords.astype(np.int64))
    return grid_of_cells(voxels[:, 1:], voxels[:, 0])


def _array(path: Path, name: str, what: str) -> np.ndarray | None:
    try:
        return read_npz(path, [name]).get(name)
    except UserError as error:
        raise ValueError(f"workload {path}: no {what} in an .npz file ({error})") from error


def noise(n: int, *, fill: float = 0.0125, seed: int = 0) -> np.ndarray:
    """Distinct uniform cells ``[n, 3]`` in a cube of which they fill a given share."""
    side = max(2, round((n / fill) ** (1 / 3)))
    flat = np.random.default_rng(seed).choice(side**3, size=min(n, side**3), replace=False)
    return np.stack(np.unravel_index(flat, (side, side, side)), axis=1)


def slab(shape: tuple[int, int, int], n: int, *, seed: int = 0) -> np.ndarray:
    """Distinct uniform cells ``[n, 3]`` of a box of the given shape."""
    # unshuffled: the quick way to draw few of many without repetition
    flat = np.random.default_rng(seed).choice(
        int(np.prod(shape)), size=n, replace=False, shuffle=False
    )
    return np.stack(np.unravel_index(flat, shape), axis=1)


def surface(n: int, *, seed: int = 0) -> np.ndarray:
    """About ``n`` cells ``[~n, 3]`` of thinned rolling ground with upright walls on it."""
    generator = np.random.default_rng(seed)
    side = max(4, int((n / 0.85) ** 0.5))
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(side), np.arange(side), indexing="ij"))
    z = np.floor(side / 40 * (np.sin(6.0 * x / side) + np.cos(4.0 * y / side)))
    ground = np.stack([x, y, z], axis=1)
    walls = []
    for _ in range(6):
        length, height = side // 3, max(2, side // 8)
        start = generator.integers(0, side - length, size=2)
        along, up = np.meshgrid(np.arange(length), np.arange(height), indexing="ij")
        direction = np.array([1, 0]) if generator.random() < 0.5 else np.array([0, 1])
        place = start + along.reshape(-1, 1) * direction
        walls.append(np.column_stack([place, up.ravel()]))
    cells = np.concatenate([ground, *walls])
    kept = cells[generator.random(len(cells)) < 0.7]
    return np.unique(kept.astype(np.int64), axis=0)

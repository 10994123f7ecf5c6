"""Workloads: voxel scenes read from files, and generated ones for machines without files.

A workload file is an ``.npz`` with ``coords``, ``[N, 4]`` integers (batch, x, y, z). Generated
scenes are named ``surface_<n>k`` or ``random_<n>k``, for about ``n`` thousand voxels. Both are
stand-ins: a surface has the neighbourhoods of a scan roughly, a random cloud has not at all.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pcnn.geometry import VoxelGrid, grid_of_cells

GENERATED = re.compile(r"(surface|random)_([1-9][0-9]*)k")


@dataclass(frozen=True, eq=False)
class Scene:
    """A named voxel grid.

    Args:
        name: what result rows call it.
        grid: the voxels.
    """

    name: str
    grid: VoxelGrid


def load_scene(workload: str) -> Scene:
    """Scene of a workload file, or of a generated scene's name.

    Raises:
        FileNotFoundError: no such file, and no name of a generated scene either.
        ValueError: a file that is no workload.
    """
    generated = GENERATED.fullmatch(workload)
    if generated:
        kind, thousands = generated.groups()
        cells = (
            surface(1000 * int(thousands)) if kind == "surface" else noise(1000 * int(thousands))
        )
        return Scene(f"{workload} (generated)", grid_of_cells(torch.from_numpy(cells)))
    path = Path(workload)
    if not path.is_file():
        raise FileNotFoundError(
            f"workload {workload}: no such file; give an .npz with coords [N, 4], or the name of a "
            "generated scene such as surface_20k or random_20k"
        )
    return Scene(path.stem, _read(path))


def _read(path: Path) -> VoxelGrid:
    try:
        with np.load(path) as content:
            coords = content["coords"]
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"workload {path}: no array coords in an .npz file ({error})") from error
    if coords.ndim != 2 or coords.shape[1] != 4 or coords.dtype.kind not in "iu":
        raise ValueError(
            f"workload {path}: coords must be integers [N, 4] (batch, x, y, z), got "
            f"{coords.dtype} {list(coords.shape)}"
        )
    voxels = torch.from_numpy(coords.astype(np.int64))
    return grid_of_cells(voxels[:, 1:], voxels[:, 0])


def noise(n: int, *, fill: float = 0.0125, seed: int = 0) -> np.ndarray:
    """Distinct uniform cells ``[n, 3]`` in a cube of which they fill a given share."""
    side = max(2, round((n / fill) ** (1 / 3)))
    flat = np.random.default_rng(seed).choice(side**3, size=min(n, side**3), replace=False)
    return np.stack(np.unravel_index(flat, (side, side, side)), axis=1)


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

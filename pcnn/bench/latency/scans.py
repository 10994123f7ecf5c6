"""Scans to be answered one after another: fixed ones, and drives of varying size.

A fixed scan is a workload: the points that its file holds, else the centres of its cells, shuffled
(`pcnn.bench.scenes`). A drive is a folder of scans in the order of their names or, without one,
*copies* of a fixed scan. These are turned about z, scaled by up to 5 %, and thinned, cut or both
until so many points are left. Copies have the density and the neighbourhoods of a scan, and no two
of them the same voxels; that the scenery does not change is what a real drive has in addition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pcnn.bench.clouds import SIMULATED, Cloud
from pcnn.bench.scenes import load_scene
from pcnn.datasets.readers.clouds import SUFFIXES, read_points
from pcnn.errors import UserError
from pcnn.files.arrays import read_npz
from pcnn.files.simulated import is_simulated

#: Edge of a voxel where neither a file nor an option says it [m].
VOXEL_SIZE = 0.05
#: Ways to make a copy smaller, in turn.
WAYS = ("thinned", "cut", "thinned and cut")
#: Largest change of scale of a copy.
SCALE = 0.05


def fixed_scan(word: str, voxel_size: float | None = None) -> Cloud:
    """The scan of a workload, of a file of points, or of a generated scene.

    Args:
        word: as ``--workload`` of the other suites.
        voxel_size: edge of a voxel [m]; ``None``: what the file says, or 0.05 m.

    Raises:
        FileNotFoundError: no such file, and no name of a generated scene either.
        ValueError: a file that is none.
    """
    path = Path(word)
    if path.suffix in SUFFIXES and path.is_file():
        return Cloud(path.stem, _points(path), voxel_size or VOXEL_SIZE)
    size = voxel_size or _size_in(path) or VOXEL_SIZE
    points = _points_in(path)
    if points is None:
        scene = load_scene(word)
        centres = (scene.grid.coords[:, 1:].to(torch.float64) + 0.5) * size
        order = torch.randperm(len(centres), generator=torch.Generator().manual_seed(0))
        return Cloud(scene.name, centres[order].to(torch.float32), size)
    return Cloud(path.stem, points, size)


def _size_in(path: Path) -> float | None:
    found = read_npz(path, ["voxel_size"]).get("voxel_size") if path.is_file() else None
    return round(float(found), 6) if found is not None and float(found) > 0 else None


def _points_in(path: Path) -> Tensor | None:
    """Points of a workload file that holds them beside its cells."""
    found = read_npz(path, ["points"]).get("points") if path.is_file() else None
    return None if found is None else torch.from_numpy(found[:, :3]).to(torch.float32)


def _points(path: Path) -> Tensor:
    try:
        return torch.as_tensor(read_points(path).points, dtype=torch.float32)
    except UserError as error:
        raise ValueError(f"scan {path}: {error}") from error


def scans_of_folder(folder: Path, voxel_size: float | None = None) -> list[Cloud]:
    """All scans of a folder, in the order of their names.

    Raises:
        ValueError: none, or one that cannot be read.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if not files:
        raise ValueError(f"no scans in {folder}; give a folder of {', '.join(SUFFIXES)} files")
    return [Cloud(path.stem, _points(path), voxel_size or VOXEL_SIZE) for path in files]


def name_of_drive(folder: Path) -> str:
    """Name of a folder of scans, or of the sequence around ``velodyne``; says if simulated."""
    place = folder.resolve()
    name = f"sequence {place.parent.name}" if place.name == "velodyne" else place.name
    return name + (SIMULATED if is_simulated(place) else "")


def copies(cloud: Cloud, points: Sequence[int]) -> list[Cloud]:
    """A copy of a scan for every number of points, at most as many as the scan has.

    Args:
        cloud: the scan.
        points: how many each copy has; the same number gives another copy.
    """
    made = []
    for number, count in enumerate(points):
        random = torch.Generator().manual_seed(number)
        own = _copy(cloud.points, count, WAYS[number % len(WAYS)], random)
        made.append(Cloud(cloud.name, own, cloud.grid_size))
    return made


def _copy(points: Tensor, count: int, way: str, random: torch.Generator) -> Tensor:
    angle, scale, heading = torch.rand(3, generator=random, dtype=torch.float64).tolist()
    kept = torch.arange(len(points), device=points.device)
    if way != "thinned":  # a sector goes: what lies next to a heading in angle comes first
        share = count / max(1, len(points))
        share = share if way == "cut" else share**0.5
        middle = points[:, :2].to(torch.float64).mean(0)
        x, y = (points[:, :2].to(torch.float64) - middle).T
        away = (torch.atan2(y, x) - 2 * math.pi * heading).remainder(2 * math.pi)
        kept = away.sort(stable=True).indices[: max(count, int(share * len(points)))]
    chosen = torch.randperm(len(kept), generator=random)[:count].to(points.device)
    c, s = math.cos(2 * math.pi * angle), math.sin(2 * math.pi * angle)
    turn = torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    turn = (turn.T * (1 + SCALE * (2 * scale - 1))).to(points.device)
    return (points[kept[chosen]].to(torch.float64) @ turn).to(torch.float32)


def sizes_of_drive(cloud: Cloud, scans: int, smallest: float = 0.5) -> list[int]:
    """Points of so many copies, evenly from a share of a scan to all of it, in mixed order."""
    most = len(cloud.points)
    shares = torch.linspace(smallest, 1.0, scans, dtype=torch.float64)
    order = torch.randperm(scans, generator=torch.Generator().manual_seed(0))
    return [int(share * most) for share in shares[order].tolist()]


def part_of(cloud: Cloud, points: int) -> Cloud:
    """The points nearest to the middle of a cloud, for a reference that takes long."""
    if len(cloud.points) <= points:
        return cloud
    middle = cloud.points.median(0).values
    away = (cloud.points - middle).square().sum(1)
    return Cloud(
        cloud.name, cloud.points[away.topk(points, largest=False).indices], cloud.grid_size
    )


def cells_of(cloud: Cloud) -> Tensor:
    """Different cells ``[N, 3]`` of a cloud."""
    cells = torch.floor(cloud.points.to(torch.float64) / cloud.grid_size).to(torch.int64)
    return torch.unique(cells, dim=0)


def clouds_of_cells(cloud: Cloud, counts: Sequence[int]) -> list[Cloud]:
    """Centres of so many different cells of a cloud: as many voxels as points.

    Raises:
        ValueError: the cloud has fewer.
    """
    distinct = cells_of(cloud)
    if max(counts, default=0) > len(distinct):
        raise ValueError(f"{cloud.name} has {len(distinct)} voxels, fewer than {max(counts)}")
    centres = ((distinct.to(torch.float64) + 0.5) * cloud.grid_size).to(torch.float32)
    made = []
    for count in counts:
        order = torch.randperm(len(distinct), generator=torch.Generator().manual_seed(count))
        made.append(Cloud(cloud.name, centres[order[:count].to(centres.device)], cloud.grid_size))
    return made

"""Ground truth files for a scene of one's own: clouds and their poses in one frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from pcnn.datasets.readers.fragments import numbered_fragments, read_fragment
from pcnn.datasets.registration.gt_files import SCENE_FILES, write_scene
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import named
from pcnn.files.text import finite_numbers, numbered_lines
from pcnn.registration.cloud_measures import voxel_means
from pcnn.registration.nearest import nearest_within
from pcnn.registration.transforms import inverse, rigid, transform_points

VOXEL = 0.025  # [m] of the benchmark's fragments
REACH = 1.5  # voxels within which two points are the same place
MOST_CORRESPONDENCES = 5000  # as in the published gt.info


def information_matrix(points: Tensor) -> Tensor:
    """Information of true correspondences about a transform's error: ``sum_p Gᵀ G``."""
    points = points.double()
    if len(points) > MOST_CORRESPONDENCES:
        points = points[torch.linspace(0, len(points) - 1, MOST_CORRESPONDENCES).long()]
    x, y, z = points.unbind(1)
    none = torch.zeros_like(x)
    cross = torch.stack([none, -z, y, z, none, -x, -y, x, none], 1).reshape(-1, 3, 3)
    eye = torch.eye(3, dtype=points.dtype).expand(len(points), 3, 3)
    jacobian = torch.cat([eye, -cross], 2)  # [M, 3, 6]
    return torch.einsum("mri,mrj->ij", jacobian, jacobian)


def scene_pairs(
    clouds: Mapping[int, Tensor],
    poses: Mapping[int, Tensor],  # [4, 4] of every cloud, to a common frame
    scene: str = "scene",
    voxel: float = VOXEL,
    overlaps: tuple[float, float] = (0.3, 1.0),
    track: Callable[[Sequence[tuple[int, int]]], Iterable[tuple[int, int]]] = iter,
) -> tuple[list[RegistrationPair], dict[tuple[int, int], float]]:
    """Pairs (i, j), i < j, of clouds that share enough, with transform and information matrix."""
    for number, cloud in clouds.items():
        if number not in poses:
            raise ValueError(f"cloud {number} has no pose")
        if len(cloud) == 0:
            raise ValueError(f"cloud {number} is empty")
    thin = {number: voxel_means(cloud, voxel).double() for number, cloud in clouds.items()}
    placed = {number: transform_points(poses[number], cloud) for number, cloud in thin.items()}
    pairs: list[RegistrationPair] = []
    shares: dict[tuple[int, int], float] = {}
    for i, j in track(list(combinations(sorted(clouds), 2))):
        shares[i, j], seen = _overlap(placed[i], placed[j], REACH * voxel)
        if overlaps[0] < shares[i, j] <= overlaps[1]:
            pairs.append(
                RegistrationPair(
                    scene,
                    i,
                    j,
                    inverse(poses[i]) @ poses[j],
                    information_matrix(thin[i][seen]),
                    shares[i, j],
                    len(pairs),
                )
            )
    return pairs, shares


def _overlap(target: Tensor, source: Tensor, reach: float) -> tuple[float, Tensor]:
    """Share of the smaller cloud in the other, and which target points the source sees."""
    # about the middle: float32 keeps millimetres far from the origin of a large site
    middle = source.mean(0)
    target, source = target - middle, source - middle
    rows = [_in_box(target, source, reach), _in_box(source, target, reach)]
    seen = torch.zeros(len(target), dtype=torch.bool)
    _, found = nearest_within(target[rows[0]], source[rows[1]], reach)
    seen[rows[0]] = found >= 0
    if len(target) <= len(source):
        return float(seen.double().mean()), seen
    _, back = nearest_within(source[rows[1]], target[rows[0]], reach)
    return int((back >= 0).sum()) / len(source), seen


def _in_box(points: Tensor, other: Tensor, reach: float) -> Tensor:
    """Rows of the points that can have a point of the other cloud within reach."""
    low, high = other.amin(0) - reach, other.amax(0) + reach
    return ((points >= low) & (points <= high)).all(1).nonzero().squeeze(1)


def make_ground_truth(
    folder: Path,
    out: Path | None = None,
    voxel: float = VOXEL,  # [m]
    overlaps: tuple[float, float] = (0.3, 1.0),
    track: Callable[[Sequence[tuple[int, int]]], Iterable[tuple[int, int]]] = iter,
    replace: bool = False,
) -> int:
    """Write gt.log, gt.info and gt_overlap.log for a folder of clouds with poses."""
    target = out or folder
    there = [name for name in SCENE_FILES if (target / name).exists()]
    if there and not replace:
        raise FileExistsError(f"{target / there[0]} is there already (--out, --replace)")
    files = numbered_fragments(folder)
    poses = {number: read_pose(path) for number, path in files.items()}
    clouds = {number: read_fragment(path) for number, path in files.items()}
    pairs, shares = scene_pairs(clouds, poses, folder.name, voxel, overlaps, track)
    if not pairs:
        most = max(shares.values(), default=0)
        raise ValueError(
            f"{folder}: no pair of its {len(files)} clouds overlaps enough: {most:.3f}"
        )
    write_scene(target, pairs, len(files), shares)
    return len(pairs)


def read_pose(cloud: Path) -> Tensor:
    """Pose [4, 4] float64 in the file beside a cloud."""
    places = [cloud.with_name(f"{cloud.stem}.{kind}.txt") for kind in ("info", "pose")]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise MissingFileError(cloud, f"no pose beside it ({', '.join(p.name for p in places)})")
    lines = numbered_lines(path)[-4:]
    if len(lines) != 4:
        raise FileError(path, "want four lines of four numbers at its end")
    with named(path, "pose"):
        return rigid([finite_numbers(path, at, line.split(), 4) for at, line in lines], str(path))

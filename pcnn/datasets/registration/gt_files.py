"""gt.log and gt.info: the ground truth of the 3DMatch benchmark, read and made.

gt.log has five lines a pair, ``i j n`` and the 4 x 4 transform that maps fragment j into i. gt.info
has seven, the same header and a 6 x 6 information matrix whose first entry is the number of true
correspondences.

Source: Redwood (Choi, Zhou, Koltun 2015) and the 3DMatch geometric registration benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.errors import FileError, MissingFileError
from pcnn.files.bounded import finite_numbers, named, numbered_lines, whole_number
from pcnn.files.whole_file import whole_file
from pcnn.registration.cloud_measures import voxel_means
from pcnn.registration.nearest import nearest_within
from pcnn.registration.transforms import inverse, rigid, transform_points

Key = tuple[int, int]


def read_gt_log(path: Path) -> dict[Key, Tensor]:
    """Transforms [4, 4] float64 by pair (i, j), in the order of the file."""
    with named(path, "gt.log"):
        return {
            key: rigid(matrix, f"{path}: transform of pair {key[0]} {key[1]}")
            for key, matrix in _blocks(path, 4).items()
        }


def read_gt_info(path: Path) -> dict[Key, Tensor]:
    """Information matrices [6, 6] float64 by pair (i, j), in the order of the file."""
    return _blocks(path, 6)


def read_scene(folder: Path, scene: str) -> list[RegistrationPair]:
    """Pairs of a scene from the files in a folder, in the order of gt.log."""
    transforms, information = read_gt_log(folder / "gt.log"), read_gt_info(folder / "gt.info")
    if list(information) != list(transforms):
        raise FileError(folder, "gt.info and gt.log list different pairs")
    return [
        RegistrationPair(scene, i, j, transform, information[i, j], index=index)
        for index, ((i, j), transform) in enumerate(transforms.items())
    ]


def write_scene(folder: Path, pairs: Iterable[RegistrationPair], fragments: int) -> None:
    """Write gt.log and gt.info, each whole."""
    pairs = list(pairs)
    for name in ("log", "info"):
        with whole_file(folder / f"gt.{name}") as file:
            for pair in pairs:
                matrix = pair.transform if name == "log" else pair.information
                assert matrix is not None
                file.write(f"{pair.target}\t{pair.source}\t{fragments}\n".encode())
                for row in matrix.tolist():
                    file.write(("\t".join(f"{value:.12f}" for value in row) + "\n").encode())


def _blocks(path: Path, size: int) -> dict[Key, Tensor]:
    """Matrices [size, size] by the pair in the header above each."""
    lines = numbered_lines(path)
    if len(lines) % (size + 1):
        raise FileError(path, f"{len(lines)} lines are no whole number of pairs of {size + 1}")
    found: dict[Key, Tensor] = {}
    for start in range(0, len(lines), size + 1):
        number, line = lines[start]
        words = line.split()
        if len(words) != 3:
            raise FileError(path, f"line {number}: want i j n, found {line[:80]!r}")
        i, j, n = (whole_number(path, number, word, "a fragment") for word in words)
        if max(i, j) >= n:
            raise FileError(path, f"line {number}: fragment {max(i, j)} of {n}, they count from 0")
        if (i, j) in found:
            raise FileError(path, f"line {number}: pair {i} {j} occurs twice")
        rows = [
            finite_numbers(path, at, row.split(), size)
            for at, row in lines[start + 1 : start + 1 + size]
        ]
        found[i, j] = torch.tensor(rows, dtype=torch.float64)
    return found


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
) -> list[RegistrationPair]:
    """Pairs (i, j), i < j, of clouds that share enough, with transform and information matrix."""
    empty = [number for number, cloud in clouds.items() if len(cloud) == 0]
    if empty:
        raise ValueError(f"cloud {empty[0]} is empty")
    thin = {number: voxel_means(cloud, voxel).double() for number, cloud in clouds.items()}
    placed = {number: transform_points(poses[number], cloud) for number, cloud in thin.items()}
    pairs: list[RegistrationPair] = []
    for i, j in track(list(combinations(sorted(clouds), 2))):
        share, seen = _overlap(placed[i], placed[j], REACH * voxel)
        if overlaps[0] < share <= overlaps[1]:
            transform, matrix = inverse(poses[i]) @ poses[j], information_matrix(thin[i][seen])
            pairs.append(RegistrationPair(scene, i, j, transform, matrix, share, len(pairs)))
    return pairs


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

"""A small scene of fragments: a corner of a room cut into overlapping boxes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.registration.gt_files import scene_pairs, write_scene
from pcnn.registration.transforms import inverse, transform_points
from tests.registration.poses import random_pose


class Pair(NamedTuple):
    """The clouds of a pair [P, 3], [Q, 3] and their transform [4, 4]."""

    source: Tensor
    target: Tensor
    transform: Tensor


def world(seed: int = 0, points: int = 6000) -> Tensor:
    """[P, 3] float64: two walls and a floor with bumps, 4 m long."""
    rng = np.random.default_rng(seed)
    x, u = rng.random((2, points)) * [[4.0], [1.5]]
    bump = 0.1 * np.sin(5 * x) * np.cos(4 * u)
    third = points // 3
    floor, back = np.stack([x, u, bump], 1), np.stack([x, 1.5 + bump, u], 1)
    boxes = np.stack([x, np.round(u, 1), 0.3 + bump], 1)
    return torch.from_numpy(np.concatenate([floor[:third], back[:third], boxes[:third]]))


def fragments(number: int = 4, share: float = 0.5) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Clouds in frames of their own and their poses; neighbours share about half."""
    points = world()
    length = 4.0 / (1 + (number - 1) * (1 - share))
    clouds, poses = {}, {}
    for place in range(number):
        low = place * (1 - share) * length
        part = points[(points[:, 0] >= low) & (points[:, 0] <= low + length)]
        poses[place] = random_pose(place)
        clouds[place] = transform_points(inverse(poses[place]), part)
    return clouds, poses


def write_fragments(folder: Path, number: int = 4) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Write fragments and poses in 3DMatch's form; returns them too."""
    clouds, poses = fragments(number)
    folder.mkdir(parents=True)
    for place, cloud in clouds.items():
        torch.save(cloud.numpy(), folder / f"cloud_bin_{place}.pth")
        rows = "\n".join("\t".join(f"{v:.8e}" for v in row) for row in poses[place].tolist())
        (folder / f"cloud_bin_{place}.info.txt").write_text(f"scene\tseq-01\t0\t49\n{rows}\n")
    return clouds, poses


def write_benchmark(folder: Path) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Write fragments with the ground truth of pairs that share a fifth; returns them too."""
    clouds, poses = write_fragments(folder)
    pairs = scene_pairs(clouds, poses, folder.name, overlaps=(0.2, 1.0))
    write_scene(folder, pairs, len(clouds))
    return clouds, poses

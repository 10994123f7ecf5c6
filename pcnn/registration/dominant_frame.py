"""The frame that a cloud's own surfaces span: floor, walls and ceiling of a room.

Surfaces that people build are often parallel or square to each other. The three square axes that
most normals follow are then nearly the same in every cloud of a place, however it lies; which axis
is which, and its sign, remain open: 24 frames fit alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.matching import drawn
from pcnn.registration.normals import normals_of
from pcnn.registration.rotation_group import rotation_group

PLACES = 1000  # of a cloud whose normals are taken
RADIUS = 2.5  # voxels: neighbourhood of a normal
POWER = 16  # of the cosine between a normal and an axis: only normals within some 20 degrees count
STEPS = 10


def dominant_frame(points: Tensor, voxel_size: float) -> Tensor:
    """The rotation that turns a cloud so that its normals lie along the axes, best they can.

    The sum of a power of all cosines between normals and axes is made large, step by step from
    beginnings spread over all rotations: the next axes are the orthogonal ones nearest to its
    gradient. The best end is taken; a cloud without such surfaces has some frame, too.

    Args:
        points: [P, 3], at least one, about one a voxel [m].
        voxel_size: [m].

    Returns:
        [3, 3] float64 on the CPU.
    """
    rows = drawn(len(points), PLACES, torch.Generator().manual_seed(0)).to(points.device)
    normals = normals_of(points, points[rows], RADIUS * voxel_size).cpu()  # [N, 3]
    axes = rotation_group(60).rotations  # [S, 3, 3], an axis a column
    for _ in range(STEPS):
        cosines = normals @ axes  # [S, N, 3]
        left, _, right = torch.linalg.svd(normals.T @ cosines.pow(POWER - 1))
        axes = left @ right
    best = axes[(normals @ axes).pow(POWER).sum((1, 2)).argmax()]
    return (best * torch.linalg.det(best)).T

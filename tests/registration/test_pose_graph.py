"""Poses of many clouds agree with the transforms between pairs, and drop those that contradict."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pcnn.datasets.registration.gt_files import information_matrix
from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.pose_graph import Edge, pose_graph
from pcnn.registration.register import NoOverlapError
from pcnn.registration.transforms import inverse
from tests.registration.poses import random_pose

INFORMATION = information_matrix(torch.rand(500, 3, generator=torch.Generator().manual_seed(0)) * 3)
NAMES = ["a", "b", "c", "d"]


def edge(poses: list[Tensor], source: int, target: int, trust: float, off: float = 0.0) -> Edge:
    """The true transform between two clouds, moved along x."""
    transform = inverse(poses[target]) @ poses[source]
    transform[0, 3] += off
    return Edge(source, target, transform, INFORMATION, trust)


def test_loops_correct_poses_and_false_ones_are_dropped() -> None:
    pytest.importorskip("open3d")
    poses = [torch.eye(4, dtype=torch.float64), *(random_pose(seed) for seed in (1, 2, 3))]
    chain = [edge(poses, 1, 0, 0.9), edge(poses, 2, 1, 0.8, off=0.03), edge(poses, 2, 3, 0.9)]
    loops = [edge(poses, 2, 0, 0.6), edge(poses, 3, 0, 0.7), edge(poses, 3, 1, 0.5, off=2.0)]
    made = pose_graph(NAMES, [*loops, *chain], 0.1)
    assert made.tree == (False, False, False, True, True, True)
    assert made.kept == (True, True, False, True, True, True)
    assert torch.equal(made.poses[0], torch.eye(4, dtype=torch.float64))
    for found, truth in zip(made.poses, poses, strict=True):
        assert float(rotation_error(found, truth)) < 0.7
        assert float(translation_error(found, truth)) < 0.025  # the chain alone is 0.03 off
    assert made.residual(made.edges[2])[1] > 1.9
    assert made.residual(made.edges[3])[1] < 0.02


def test_clouds_apart_are_named() -> None:
    poses = [torch.eye(4, dtype=torch.float64), *(random_pose(seed) for seed in (1, 2, 3))]
    with pytest.raises(NoOverlapError, match="c, d: no transform connects them with a"):
        pose_graph(NAMES, [edge(poses, 1, 0, 1.0), edge(poses, 3, 2, 1.0)], 0.1)
    with pytest.raises(NoOverlapError, match="b: no transform connects it with a"):
        pose_graph(NAMES[:2], [], 0.1)

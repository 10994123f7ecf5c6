"""Positives of a batch against scipy's trees, pair by pair."""

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from pcnn.registration.descriptor import unit_length
from pcnn.registration.positives import positive_pairs
from pcnn.registration.transforms import inverse, transform_points
from tests.registration.poses import random_pose

Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def batch_of(sizes: list[tuple[int, int]], width: float, shift: float = 0.0) -> Batch:
    """Places and offsets of pairs of clouds of these sizes, and transforms, as for the function."""
    generator = torch.Generator().manual_seed(len(sizes))
    sources, targets, transforms = [], [], []
    for number, (n, m) in enumerate(sizes):
        truth = random_pose(number)
        truth[:3, 3] += shift
        world = torch.rand(max(n, m), 3, generator=generator, dtype=torch.float64) * width + shift
        target = world[torch.randperm(len(world), generator=generator)[:m]]
        sources.append(transform_points(inverse(truth), world[:n]).float())
        targets.append(target.float())
        transforms.append(truth)
    ends = [torch.tensor([0, *map(len, side)]).cumsum(0) for side in (sources, targets)]
    poses = torch.stack(transforms) if transforms else torch.empty(0, 4, 4, dtype=torch.float64)
    none = [torch.empty(0, 3)]
    return torch.cat(sources + none), ends[0], torch.cat(targets + none), ends[1], poses


def by_trees(batch: Batch, radius: float) -> tuple[np.ndarray, list[int]]:
    source, source_ends, target, target_ends, transforms = batch
    found, counts = [np.zeros((0, 2), dtype=np.int64)], [0]
    for b, transform in enumerate(transforms):
        here = slice(*source_ends[b : b + 2].tolist())
        there = slice(*target_ends[b : b + 2].tolist())
        moved = transform_points(transform, source[here].double()).numpy()
        pairs = []
        if len(moved) and len(target[there]):
            near = cKDTree(target[there].double().numpy()).query_ball_point(moved, radius)
            pairs = [[i + here.start, j + there.start] for i, row in enumerate(near) for j in row]
        found.append(np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2))
        counts.append(counts[-1] + len(pairs))
    return np.concatenate(found), counts


CASES = {
    "one pair": [(300, 250)],
    "three pairs": [(200, 150), (90, 220), (150, 150)],
    "an empty source": [(0, 40), (60, 50)],
    "an empty target": [(60, 50), (40, 0)],
    "one point each": [(1, 1), (1, 1)],
    "no points": [(0, 0)],
    "no pairs": [],
}


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("shift", [0.0, 300.0], ids=["near", "far from zero"])
def test_equals_trees(case: str, shift: float) -> None:
    batch = batch_of(CASES[case], 2.0, shift)
    positives, offsets = positive_pairs(*batch, radius=0.25)
    wanted, counts = by_trees(batch, 0.25)
    assert positives.dtype == offsets.dtype == torch.int64
    assert positives.shape == (len(wanted), 2)
    assert np.array_equal(positives.numpy(), wanted)
    assert offsets.tolist() == counts
    if case == "three pairs":
        assert len(wanted) > 100


def test_device_kernels_find_the_same(emulated: None) -> None:
    for case in CASES.values():
        batch = batch_of([(n // 2, m // 2) for n, m in case], 1.5)
        positives, offsets = positive_pairs(*batch, radius=0.3)
        wanted, counts = by_trees(batch, 0.3)
        assert np.array_equal(positives.numpy(), wanted)
        assert offsets.tolist() == counts


@pytest.mark.gpu
def test_a_gpu_finds_the_same() -> None:
    batch = batch_of([(40_000, 35_000), (20_000, 30_000), (0, 9), (5000, 1)], 40.0)
    positives, offsets = positive_pairs(*(side.cuda() for side in batch), radius=0.9)
    wanted, counts = by_trees(batch, 0.9)
    assert np.array_equal(positives.cpu().numpy(), wanted)
    assert offsets.tolist() == counts
    assert len(wanted) > 1000


def test_unit_length() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-6, 0.0]], requires_grad=True)
    found = unit_length(rows)
    assert found.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0], [1, 0]]
    found[:2].sum().backward()
    assert rows.grad.abs().max() <= 1
    assert unit_length(rows.detach().half()).dtype == torch.float32
    assert unit_length(rows.detach().double()).dtype == torch.float64

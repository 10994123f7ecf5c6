"""Poses that are fitted to surfaces: exact on exact data, steady, never worse than before."""

import pytest
import torch
from torch import Tensor

from pcnn.metrics.registration.errors import rotation_error, translation_error
from pcnn.registration import surface_fit
from pcnn.registration.cloud_measures import voxel_means
from pcnn.registration.descriptor import Described
from pcnn.registration.estimate import estimate_all
from pcnn.registration.evidence import PairEvidence
from pcnn.registration.register import default_settings
from pcnn.registration.surface_fit import fit_surfaces
from pcnn.registration.transforms import inverse, transform_points
from tests.registration.clouds import place, two_views
from tests.registration.poses import random_pose, shifted, turned

CELL = 0.05
#: A centimetre and a degree off, as poses of matches are.
OFF = shifted(0.01, -0.008, 0.006) @ turned((1, 2, 3), 0.5)


def seen(source: Tensor, target: Tensor, ends: tuple[Tensor, Tensor]) -> PairEvidence:
    one, other = (Described(points, torch.zeros(len(points), 4)) for points in (source, target))
    return PairEvidence([one], [other], [ends], 1.5 * CELL, CELL)


def fitted(start: Tensor, pair: PairEvidence) -> Tensor:
    return fit_surfaces(start[None], pair)[0]


def errors(found: Tensor, truth: Tensor) -> tuple[float, float]:
    return float(translation_error(found, truth)), float(rotation_error(found, truth))


def exact(seed: int = 0, far: float = 0.0) -> tuple[PairEvidence, Tensor]:
    """The same points in two frames, in float64, and every hundredth of them as a match."""
    target = place(seed)[::3].double() + far
    truth = random_pose(seed)
    source = transform_points(inverse(truth), target)
    return seen(source, target, (source[::100], target[::100])), truth


def test_a_pose_is_exact_on_exact_points() -> None:
    pair, truth = exact()
    # as far off as half of the spacing of points: then partners are the points themselves
    start = shifted(1e-3, -1e-3, 1e-3) @ truth
    assert errors(fitted(start, pair), truth) == pytest.approx((0, 0), abs=1e-10)
    assert errors(fitted(truth, pair), truth) == pytest.approx((0, 0), abs=1e-10)


def test_views_that_share_a_part_meet_far_better_than_their_cells() -> None:
    source, target, truth = two_views()
    source, target = voxel_means(source, CELL), voxel_means(target, CELL)
    ends = source[::50], transform_points(truth, source[::50].double()).float()
    start = OFF @ truth
    before = errors(start, truth)
    after = errors(fitted(start, seen(source, target, ends)), truth)
    assert after[0] < 0.3 * before[0]
    assert after[1] < 0.3 * before[1]


def test_it_never_ends_with_less_support_than_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, truth = exact()
    start = OFF @ truth

    def away(*_: object) -> Tensor:
        return shifted(0.2, 0.1, 0.3)[None]  # every step leads away

    monkeypatch.setattr(surface_fit, "_motion", away)
    assert torch.equal(fitted(truth, pair), truth)
    assert torch.equal(fitted(start, pair), start)


def test_matches_hold_what_planes_leave_free() -> None:
    # a floor and a wall: nothing but matches tells the place along both
    grid = torch.cartesian_prod(torch.arange(0, 2, 0.03), torch.arange(0, 2, 0.03))
    floor = torch.cat([grid, torch.zeros(len(grid), 1)], 1)
    wall = torch.cat([grid[:, :1], torch.zeros(len(grid), 1), grid[:, 1:]], 1)
    target = torch.cat([floor, wall])
    source = target + torch.tensor([0.013, 0, 0])  # points of a surface at other places of it
    ends = target[::10], target[::10]
    start = shifted(0.02, 0.01, -0.01)
    found = fitted(start.double(), seen(source, target, ends))
    assert errors(found, torch.eye(4).double()) == pytest.approx((0, 0), abs=5e-3)
    # nor do they lead away where points have no planes at all
    line = torch.arange(0, 2, 0.01)[:, None] * torch.tensor([[1.0, 0.5, 0.2]])
    found = fitted(start.double(), seen(line, line, (line[::9], line[::9])))
    assert bool(torch.isfinite(found).all())
    assert float((transform_points(found, line.double()) - line).norm(dim=1).max()) < 1e-3


@pytest.mark.parametrize("far", [0.0, 500.0])
def test_it_is_the_same_each_time_and_wherever_clouds_lie(far: float) -> None:
    pair, truth = exact(2, far)
    start = shifted(*(torch.ones(3).double() * 1e-3).tolist()) @ truth
    found = fitted(start, pair)
    assert torch.equal(found, fitted(start, exact(2, far)[0]))
    # float32 places of a search are 3e-5 m apart at 500 m
    assert errors(found, truth) == pytest.approx((0, 0), abs=1e-3 if far else 1e-10)


@pytest.mark.parametrize("number", [1, 3])
def test_tiny_clouds_keep_a_pose(number: int) -> None:
    points = torch.rand(number, 3, generator=torch.Generator().manual_seed(number))
    truth = random_pose(number)
    source = transform_points(inverse(truth), points.double()).float()
    found = fitted(truth, seen(source, points, (source, points)))
    assert errors(found, truth) == pytest.approx((0, 0), abs=1e-3)


def noisy_pair(seed: int) -> tuple[Described, Described]:
    """Two views with places as descriptors, half of the source's of another place."""
    source, target, truth = two_views(seed)
    source, target = voxel_means(source, CELL), voxel_means(target, CELL)
    generator = torch.Generator().manual_seed(seed)
    features = transform_points(truth, source.double()).float()
    features = features + 0.04 * torch.randn(features.shape, generator=generator)
    bad = torch.rand(len(source), generator=generator) < 0.5
    features[bad] = torch.rand(int(bad.sum()), 3, generator=generator) * 3
    return Described(source, features), Described(target, target.clone())


def test_pairs_together_get_the_pose_of_each_alone() -> None:
    pairs = [noisy_pair(seed) for seed in range(3)]
    alone = [estimate_all([a], [b], default_settings(CELL), 2000)[0] for a, b in pairs]
    together = estimate_all(*zip(*pairs, strict=True), default_settings(CELL), 2000)
    for one, other in zip(alone, together, strict=True):
        found, same = one.solution.transform, other.solution.transform
        assert found is not None
        assert errors(same, found) == pytest.approx((0, 0), abs=1e-9)
        assert torch.equal(one.solution.inliers, other.solution.inliers)
        torch.testing.assert_close(one.evidence(found[None]), other.evidence(found[None]))

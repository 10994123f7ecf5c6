import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pcnn.datasets.registration import ThreeDMatch
from pcnn.metrics.registration import mean_of, rotation_error, translation_error
from pcnn.registration.estimate import estimate_all
from pcnn.registration.fpfh import FPFH
from pcnn.registration.ransac import ransac, ransac_batch
from pcnn.registration.rigid_fit import fitted, weighted_svd
from pcnn.registration.settings import EstimateSettings, RansacSettings
from pcnn.registration.transforms import transform_points
from tests.registration.poses import random_pose

HOTEL3 = "sun3d-hotel_umd-maryland_hotel3"

SETTINGS = RansacSettings(distance=0.05, hypotheses=20_000)


def matches(
    seed: int, number: int = 400, right: float = 0.1, noise: float = 0.01
) -> tuple[Tensor, Tensor, Tensor]:
    """Source and target points of matches, some of them right, and the truth."""
    generator = torch.Generator().manual_seed(seed)
    truth = random_pose(seed)
    source = torch.rand(number, 3, generator=generator) * 3
    target = torch.rand(number, 3, generator=generator) * 3
    good = torch.arange(number) < right * number
    moved = transform_points(truth, source.double()).float()
    moved += noise * torch.randn(number, 3, generator=generator)
    return source, torch.where(good[:, None], moved, target), truth


@pytest.mark.parametrize("points", [3, 4, 8])
def test_closed_form_equals_svd(points: int) -> None:
    source = torch.randn(500, points, 3, dtype=torch.float64)
    truth = torch.stack([random_pose(seed) for seed in range(500)])
    target = transform_points(truth, source) + 0.05 * torch.randn(500, points, 3)
    torch.testing.assert_close(
        fitted(source, target), weighted_svd(source, target), atol=1e-6, rtol=0
    )


def test_closed_form_of_degenerate_points_is_a_rotation() -> None:
    line = torch.arange(3.0, dtype=torch.float64)[:, None] * torch.tensor([1.0, 2, -1])
    source = torch.stack([line, torch.zeros(3, 3), torch.eye(3)]).double()
    target = transform_points(random_pose(0), source)
    found = fitted(source, target)
    # one place and a triangle fit; on a line the turn about it is open
    torch.testing.assert_close(transform_points(found, source)[1:], target[1:], atol=1e-6, rtol=0)
    eye = torch.eye(3, dtype=torch.float64).expand(3, 3, 3)
    torch.testing.assert_close(found[:, :3, :3] @ found[:, :3, :3].mT, eye, atol=1e-9, rtol=0)


@pytest.mark.parametrize("points", [3, 4])
def test_finds_the_pose_among_wrong_matches(points: int) -> None:
    right = 0.1 if points == 3 else 0.2
    settings = RansacSettings(distance=0.05, points=points, hypotheses=20_000)
    for seed in range(2):
        source, target, truth = matches(seed, right=right)
        found = ransac(source, target, settings, seed)
        assert float(rotation_error(found.transform, truth)) < 1
        assert float(translation_error(found.transform, truth)) < 0.03
        assert int(found.inliers.sum()) >= 0.9 * right * 400
        assert found.hypotheses == 20_000


def test_figures_stay_as_they_are() -> None:
    source, target, _ = matches(0)
    found = ransac(source, target, SETTINGS, 3)
    assert int(found.inliers.sum()) == 40
    assert found.transform[:3].flatten().tolist() == pytest.approx(
        [
            *(0.4216057, 0.7500024, -0.5096518, 1.1409692),
            *(-0.8580571, 0.1482209, -0.4916997, 1.296635),
            *(-0.2932349, 0.6446138, 0.7060357, 0.4984919),
        ],
        abs=1e-6,
    )


def test_far_from_the_origin_nothing_is_lost() -> None:
    source, target, truth = matches(0, noise=0.001)
    there = torch.tensor([5e3, -7e3, 100.0], dtype=torch.float64)
    found = ransac(source.double() + there, target.double() + there, SETTINGS)
    moved = transform_points(found.transform, source.double() + there) - there
    right = found.inliers
    assert int(right.sum()) >= 38
    expected = transform_points(truth, source.double())
    assert float((moved - expected)[right].norm(dim=1).max()) < 0.01


def test_a_batch_gives_what_each_gives_alone_and_seeds_repeat() -> None:
    made = [matches(seed, number) for seed, number in enumerate((400, 90, 250))]
    sources, targets = [one[0] for one in made], [one[1] for one in made]
    settings = RansacSettings(distance=0.05, hypotheses=12_000, confidence=0.99)
    together = ransac_batch(sources, targets, settings, seed=4)
    for source, target, solution in zip(sources, targets, together, strict=True):
        alone = ransac(source, target, settings, seed=4)
        assert alone.hypotheses == solution.hypotheses
        assert (alone.transform is None) == (solution.transform is None)
        if alone.transform is not None and solution.transform is not None:
            assert torch.equal(alone.transform, solution.transform)
    one, other = (ransac(sources[0], targets[0], SETTINGS, s, refine=False) for s in (0, 1))
    assert not torch.equal(one.transform, other.transform)


def test_early_exit_needs_fewer_hypotheses() -> None:
    source, target, _ = matches(0, right=0.8)
    sure = RansacSettings(distance=0.05, hypotheses=50_000, confidence=0.999)
    assert ransac(source, target, sure).hypotheses < 50_000


def test_without_a_hypothesis_there_is_no_estimate() -> None:
    source, target, _ = matches(0, right=0.0)
    assert ransac(source[:2], target[:2], SETTINGS).transform is None
    assert ransac(source[:0], target[:0], SETTINGS).transform is None
    apart = torch.arange(9.0).reshape(3, 3) ** 2
    assert ransac(apart, 5 * apart, SETTINGS).transform is None
    one_place = torch.zeros(50, 3)
    found = ransac(one_place, one_place + 1, SETTINGS)  # any rotation fits; the shift is right
    moved = transform_points(found.transform, one_place.double())
    torch.testing.assert_close(moved, one_place.double() + 1)


def test_refusals() -> None:
    points = torch.zeros(5, 3)
    with pytest.raises(ValueError, match=r"\[M, 3\] on both sides"):
        ransac(points, points[:4], SETTINGS)
    with pytest.raises(ValueError, match="NaN"):
        ransac(points, points / 0, SETTINGS)
    for words, bad in (
        ("distance", {"distance": 0.0}),
        ("distance", {"distance": math.inf}),
        ("at least 3", {"distance": 1.0, "points": 2}),
        ("confidence", {"distance": 1.0, "confidence": 0.0}),
    ):
        with pytest.raises(ValueError, match=words):
            RansacSettings(**bad)  # type: ignore[arg-type]


def test_open3d_finds_the_same_pose_and_refines_it() -> None:
    pytest.importorskip("open3d")
    from pcnn.registration.matching import Matches
    from pcnn.registration.open3d_tools import icp, open3d_ransac

    source, target, truth = matches(0, right=0.3)
    rows = torch.arange(400)
    found = open3d_ransac(source, target, Matches(rows, rows, torch.zeros(400)), SETTINGS)
    assert float(rotation_error(found.transform, truth)) < 3
    assert int(found.inliers.sum()) > 60
    refined = icp(source[:120], target[:120], found.transform, 0.05)
    assert refined.fitness > 0.9
    assert float(translation_error(refined.transform, truth)) < 0.01
    assert icp(source, source, truth, 1e-9).fitness == 0


@pytest.mark.data
@pytest.mark.slow
def test_success_is_that_of_open3d(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("open3d")
    root = data_root / "threedmatch"
    descriptor, held = FPFH(0.05), {}
    rules = RansacSettings(distance=0.05)
    success: dict[str, list[list[bool]]] = {"ransac": [], "open3d": []}
    for data in (ThreeDMatch(root, name, [HOTEL3]) for name in ("3DMatch", "3DLoMatch")):
        for pair in data.pairs:
            for index in (pair.source, pair.target):
                if index not in held:
                    held[index] = descriptor(data.cloud(HOTEL3, index))
            pairs = [held[pair.source]] * 10, [held[pair.target]] * 10
            for solver, rows in success.items():
                row = []
                for seed, source, target in zip(range(10), *pairs, strict=True):
                    settings = EstimateSettings(rules, solver, refine=False, seed=seed)  # type: ignore[arg-type]
                    (found,) = estimate_all([source], [target], settings, 5000)
                    transform = found.solution.transform
                    row.append(
                        transform is not None
                        and float(rotation_error(transform, pair.transform)) < 15
                        and float(translation_error(transform, pair.transform)) < 0.3
                    )
                rows.append(row)
    torch_success, open3d_success = (np.array(rows, float) for rows in success.values())
    assert torch_success.shape == (103, 10)
    gaps = (torch_success - open3d_success).mean(1)
    difference = mean_of(gaps, gaps == gaps, np.zeros(len(gaps), int), "pairs")
    with capsys.disabled():
        print(f"\ntorch {torch_success.mean():.3f} open3d {open3d_success.mean():.3f} {difference}")
    assert abs(difference.value) <= 0.03

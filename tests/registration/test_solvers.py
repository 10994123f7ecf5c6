"""Solvers against the truth and each other, and their parts against loops."""

import pytest
import torch
from torch import Tensor

from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.cliques import MOST, Agreement, cliques_batch, distinct, poses
from pcnn.registration.compatibility import alike, leaders, lengths, most_compatible, second_order
from pcnn.registration.nearest import nearest_rows
from pcnn.registration.ransac import ransac
from pcnn.registration.rigid_fit import fitted
from pcnn.registration.settings import RansacSettings
from pcnn.registration.solution import Solution
from pcnn.registration.transforms import assembled, transform_points
from tests.registration.poses import random_pose

DISTANCE = 0.05
SETTINGS = RansacSettings(DISTANCE, hypotheses=20_000)


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


def weighted_svd(source: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The transforms of `fitted` as Kabsch 1976 and Umeyama 1991 find them."""
    weight = torch.ones_like(source[..., 0]) if weight is None else weight
    share = (weight / weight.sum(-1, keepdim=True))[..., None]
    one, other = (side - (share * side).sum(-2, keepdim=True) for side in (source, target))
    u, _, vt = torch.linalg.svd((share * one).mT @ other)
    flip = torch.ones(len(u), 3, dtype=u.dtype)
    flip[:, 2] = torch.linalg.det(vt.mT @ u.mT).sign()
    rotation = (vt.mT * flip[:, None]) @ u.mT
    middle = (share * source).sum(-2, keepdim=True)
    shift = (share * target).sum(-2) - (rotation @ middle.mT).squeeze(-1)
    return assembled(rotation, shift)


@pytest.mark.parametrize(("points", "weighted"), [(3, False), (4, False), (8, False), (6, True)])
def test_closed_form_equals_svd(points: int, weighted: bool) -> None:
    source = torch.randn(500, points, 3, dtype=torch.float64)
    truth = torch.stack([random_pose(seed) for seed in range(500)])
    target = transform_points(truth, source) + 0.05 * torch.randn(500, points, 3)
    weight = torch.rand(500, points).double() if weighted else None
    if weight is not None:
        weight[:, 2] = 0
    expected = weighted_svd(source, target, weight)
    torch.testing.assert_close(fitted(source, target, weight), expected, atol=1e-6, rtol=0)


def cliques(source: Tensor, target: Tensor) -> Solution:
    return cliques_batch([source], [target], DISTANCE)[0]


def solved(solver: str, source: Tensor, target: Tensor) -> Solution:
    if solver == "cliques":
        return cliques(source, target)
    return ransac(source, target, RansacSettings(DISTANCE, int(solver[-1]), 20_000))


@pytest.mark.parametrize(
    ("solver", "number", "right", "noise"),
    [
        *(("ransac 3", 400, 0.1, 0.01), ("ransac 4", 400, 0.2, 0.01)),
        *(("cliques", 30, 1.0, 0.0), ("cliques", 400, 0.05, 0.01), ("cliques", 3000, 0.03, 0.01)),
    ],
)
def test_finds_the_pose_among_wrong_matches(
    solver: str, number: int, right: float, noise: float
) -> None:
    for seed in range(2):
        source, target, truth = matches(seed, number, right, noise)
        found = solved(solver, source, target)
        assert found.transform is not None
        close = (1e-4, 1e-5) if noise == 0 else (3, 0.06)
        assert float(rotation_error(found.transform, truth)) < close[0]
        assert float(translation_error(found.transform, truth)) < close[1]
        assert int(found.inliers.sum()) >= 0.8 * right * number
        assert found.hypotheses <= (MOST if solver == "cliques" else 20_000)


def test_seeds_repeat_and_an_early_exit_needs_fewer_hypotheses() -> None:
    source, target, _ = matches(0)
    settings = RansacSettings(DISTANCE, hypotheses=12_000, confidence=0.99)
    one, same = (ransac(source, target, settings, seed=4) for _ in range(2))
    assert one.hypotheses == same.hypotheses
    assert torch.equal(one.transform, same.transform)
    one, other = (ransac(source, target, SETTINGS, seed, refine=False) for seed in (0, 1))
    assert not torch.equal(one.transform, other.transform)
    source, target, _ = matches(0, right=0.8)
    sure = RansacSettings(DISTANCE, confidence=0.999)
    assert ransac(source, target, sure).hypotheses < sure.hypotheses


@pytest.mark.parametrize("solver", ["ransac 3", "cliques"])
def test_without_a_hypothesis_there_is_no_estimate(solver: str) -> None:
    apart = torch.arange(27.0).reshape(9, 3) ** 2
    for number in (0, 1, 2, 3, 9):
        found = solved(solver, apart[:number], 5 * apart[:number])
        assert found.transform is None
        assert found.inliers.tolist() == [False] * number
    assert cliques_batch([], [], DISTANCE) == []
    one_place = torch.zeros(50, 3)
    any_turn = ransac(one_place, one_place + 1, SETTINGS).transform  # the shift is right
    assert any_turn is not None
    moved = transform_points(any_turn, one_place.double())
    torch.testing.assert_close(moved, one_place.double() + 1)


def test_the_graph_is_that_of_all_pairs() -> None:
    source, target, _ = matches(0, 60, right=0.5)
    target[7] = target[3]  # two matches of one point say nothing about each other
    one, other, elsewhere = (
        lengths(side, others, 0.075)
        for side, others in ((source, source), (target, target), (target, target.roll(30, 0)))
    )
    found = alike(one, other, 0.075).bool()
    for i in range(60):
        for j in range(60):
            a, b = (float((side[i] - side[j]).norm()) for side in (source, target))
            assert bool(found[i, j]) == (abs(a - b) < 0.075 and min(a, b) > 0.075)
    assert not found[3, 7]
    assert not found.diagonal().any()
    common = (found[:, None, :] & found[None, :, :]).sum(2) * found
    assert torch.equal(second_order(found.float()), common.float())
    degrees = found.sum(1) - alike(one, elsewhere, 0.075).sum(1)
    rows = most_compatible(source, target, 0.075, 20)
    assert torch.equal(rows, degrees.argsort(descending=True, stable=True)[:20].sort().values)
    assert torch.equal(most_compatible(source, target, 0.075, 60), torch.arange(60))


def test_leaders_are_those_of_loops() -> None:
    support = torch.randint(0, 30, (1, 40, 40), generator=torch.Generator().manual_seed(0)).float()
    support = torch.minimum(support, support.mT)
    largest = support[0].amax(1)
    worth = []
    for i in range(40):
        ahead = [j for j in range(40) if largest[j] > largest[i]]
        followed = sum(bool(5 * support[0, j, i] >= 3 * largest[j]) for j in ahead)
        worth.append((-float(largest[i]) / (followed + 2), i))
    assert leaders(support, 12)[0].tolist() == sorted(row for _, row in sorted(worth)[:12])
    assert leaders(support, 40)[0].tolist() == list(range(40))


def test_distinct_poses_are_those_of_a_loop() -> None:
    places = torch.randn(3, 60, 5, 3, dtype=torch.float64).cumsum(1)
    score = torch.rand(3, 60).round(decimals=1)  # with ties
    rows, there = distinct(places, score, 3.0, 8)
    for pair in range(3):
        kept: list[int] = []
        for row in score[pair].argsort(descending=True, stable=True).tolist():
            gaps = [(places[pair, row] - places[pair, one]).square().sum() / 5 for one in kept]
            if all(float(gap) >= 9 for gap in gaps) and len(kept) < 8:
                kept.append(row)
        assert rows[pair, there[pair]].tolist() == kept


def test_agreement_is_that_of_residuals_far_from_the_origin() -> None:
    source, target, truth = matches(0, 300, right=0.5)
    source, target = source.double() + 200, target.double() - 300
    poses = torch.stack([truth, *(random_pose(seed) for seed in range(9))])
    poses[:, :3, 3] += target.mean(0) - (poses[:, :3, :3] @ source.mean(0))
    agreement = Agreement(source[None], target[None], 0.3)
    gap = (transform_points(poses, source) - target).norm(dim=2) / 0.3
    expected = (1 - gap.square()).clamp(min=0)
    torch.testing.assert_close(agreement(poses[None, :, :3])[0], expected, atol=1e-8, rtol=0)
    torch.testing.assert_close(
        agreement.support(poses[None, :, :3])[0], expected.sum(1), atol=1e-6, rtol=0
    )
    fits = fitted(source.expand(10, -1, -1), target.expand(10, -1, -1), expected)
    some = expected.sum(1) > 0
    torch.testing.assert_close(
        agreement.fitted(expected[None])[0, some], fits[some, :3], atol=1e-6, rtol=0
    )


def test_a_batch_gives_what_each_gives_alone() -> None:
    made = [matches(seed, number, 0.2) for seed, number in enumerate((400, 2, 90, 1200))]
    sources, targets = [one[0] for one in made], [one[1] for one in made]
    together = cliques_batch(sources, targets, DISTANCE)
    for source, target, solution in zip(sources, targets, together, strict=True):
        alone = cliques(source, target)
        assert (alone.transform is None) == (solution.transform is None)
        if alone.transform is not None and solution.transform is not None:
            torch.testing.assert_close(alone.transform, solution.transform, atol=1e-6, rtol=0)
            assert torch.equal(alone.inliers, solution.inliers)


def test_two_poses_with_support_are_both_found() -> None:
    (source, target, truth), (more, there, other) = matches(0, 200, 0.4), matches(1, 200, 0.25)
    found = cliques(torch.cat([source, more]), torch.cat([target, there])).candidates
    assert found is not None
    for place, pose in enumerate((truth, other)):
        assert float(rotation_error(found.transforms[place], pose)) < 1
    assert torch.equal(found.support.sort(descending=True).values, found.support)


@pytest.mark.gpu
def test_a_batch_gives_what_the_cpu_gives() -> None:
    sizes = (400, 0.1), (5000, 0.02), (90, 0.3), (1500, 0.05), (2, 1.0)
    made = [matches(seed, number, right) for seed, (number, right) in enumerate(sizes)]
    sides = [[one[side].cuda() for one in made] for side in (0, 1)]
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        together = cliques_batch(*sides, DISTANCE)
        for (source, target, _), found in zip(made, together, strict=True):
            expected = cliques(source, target)
            alone = cliques(source.cuda(), target.cuda())
            if expected.transform is None:
                assert found.transform is alone.transform is None
                continue
            torch.testing.assert_close(found.transform, expected.transform, atol=1e-3, rtol=0)
            torch.testing.assert_close(alone.transform, expected.transform, atol=1e-3, rtol=0)


@pytest.mark.gpu
def test_poses_wait_for_nothing() -> None:
    made = [matches(seed, number, 0.1) for seed, number in enumerate((700, 3000))]
    sides = torch.zeros(2, 2, 3000, 3, device="cuda")
    for place, pair in enumerate(made):
        for side in (0, 1):
            sides[side, place, : len(pair[side])] = pair[side].cuda()
    counts = torch.tensor([700, 3000], device="cuda")
    poses(*sides, counts, DISTANCE)  # kernels are compiled
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = poses(*sides, counts, DISTANCE)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for solution, (_, _, truth) in zip(found.on_host([700, 3000]), made, strict=True):
        assert solution.transform is not None
        assert float(rotation_error(solution.transform, truth)) < 2


@pytest.mark.gpu
def test_ransac_on_a_gpu_finds_every_pose_and_tf32_changes_nothing() -> None:
    settings = RansacSettings(DISTANCE)
    for seed in range(8):
        source, target, truth = (side.cuda() for side in matches(seed, 5000, right=0.05))
        found = ransac(source, target, settings).transform
        assert float(rotation_error(found, truth.cpu())) < 2
        assert float(translation_error(found, truth.cpu())) < 0.06
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.equal(ransac(source, target, settings).transform, found)
    query, others = torch.rand(3000, 33), torch.rand(4000, 33)
    expected = nearest_rows([query], [others])
    rows = nearest_rows([query.cuda()], [others.cuda()])
    assert float((rows.cpu() == expected).double().mean()) > 0.999

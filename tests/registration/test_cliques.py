"""The solver of cliques against the truth, its graph against loops over all pairs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.agreement import Agreement
from pcnn.registration.clique_groups import leaders
from pcnn.registration.cliques import cliques, cliques_batch, poses
from pcnn.registration.compatibility import alike, lengths, most_compatible, second_order
from pcnn.registration.distinct_poses import distinct, without_a_look
from pcnn.registration.found_poses import Found, on_host, packed, solutions_of
from pcnn.registration.graphed_cliques import GraphedCliques, room_for
from pcnn.registration.rigid_fit import fitted, weighted_svd
from pcnn.registration.settings import CliqueSettings
from pcnn.registration.transforms import transform_points
from pcnn.runtime.capture import Figures
from tests.registration.poses import random_pose
from tests.registration.test_ransac import matches

SETTINGS = CliqueSettings(0.05)


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


def test_counts_in_halves_are_exact() -> None:
    edges = torch.rand(2, 600, 600).lt(0.9).float().triu(1)
    edges = edges + edges.mT
    assert torch.equal(second_order(edges), edges @ edges * edges)


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
    same = torch.cdist(places.flatten(2), places.flatten(2)) < 3 * 5**0.5
    order = score.argsort(dim=1, descending=True, stable=True)
    found, real = without_a_look(same, order, 8)
    assert torch.equal(real, there)
    assert torch.equal(found[real], rows[there])


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


def test_a_weighted_closed_form_equals_svd() -> None:
    source = torch.randn(200, 6, 3, dtype=torch.float64)
    truth = torch.stack([random_pose(seed) for seed in range(200)])
    target = transform_points(truth, source) + 0.05 * torch.randn(200, 6, 3)
    weight = torch.rand(200, 6)
    weight[:, 2] = 0
    expected = weighted_svd(source, target, weight.double())
    torch.testing.assert_close(fitted(source, target, weight), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("number", "right", "noise"),
    [(30, 1.0, 0.0), (400, 0.05, 0.01), (400, 0.3, 0.02), (3000, 0.03, 0.01)],
)
def test_finds_the_pose_among_wrong_matches(number: int, right: float, noise: float) -> None:
    for seed in range(2):
        source, target, truth = matches(seed, number, right, noise)
        found = cliques(source, target, SETTINGS)
        assert found.transform is not None
        assert float(rotation_error(found.transform, truth)) < (1e-4 if noise == 0 else 2)
        assert float(translation_error(found.transform, truth)) < (1e-5 if noise == 0 else 0.06)
        assert int(found.inliers.sum()) >= 0.8 * right * number
        assert found.hypotheses <= SETTINGS.most


def test_a_batch_gives_what_each_gives_alone() -> None:
    made = [matches(seed, number, 0.2) for seed, number in enumerate((400, 2, 90, 1200))]
    sources, targets = [one[0] for one in made], [one[1] for one in made]
    together = cliques_batch(sources, targets, SETTINGS)
    for source, target, solution in zip(sources, targets, together, strict=True):
        alone = cliques(source, target, SETTINGS)
        assert (alone.transform is None) == (solution.transform is None)
        if alone.transform is not None and solution.transform is not None:
            torch.testing.assert_close(alone.transform, solution.transform, atol=1e-6, rtol=0)
            assert torch.equal(alone.inliers, solution.inliers)


def test_rows_to_spare_change_nothing() -> None:
    made = [matches(seed, number, 0.2) for seed, number in enumerate((400, 90, 1200))]
    sides = torch.full((2, 3, 1500, 3), 7.0)
    for place, (source, target, _) in enumerate(made):
        sides[0, place, : len(source)], sides[1, place, : len(source)] = source, target
    counts = [len(source) for source, _, _ in made]
    found = on_host(poses(*sides, torch.tensor(counts), SETTINGS), counts)
    for (source, target, _), solution in zip(made, found, strict=True):
        alone = cliques(source, target, SETTINGS)
        assert alone.transform is not None
        assert solution.transform is not None
        torch.testing.assert_close(alone.transform, solution.transform, atol=1e-6, rtol=0)
        assert torch.equal(alone.inliers, solution.inliers)


def test_graphs_give_what_eager_calls_give() -> None:
    def rerun(work: Callable[[], Figures]) -> Callable[[], Figures]:
        captured.append(work)
        return lambda: work()

    captured: list[Callable[[], Figures]] = []
    solve = GraphedCliques(SETTINGS, capture=rerun, repeats=1)
    graphs = []
    for seed, number in enumerate((400, 1500, 300, 2, 3, 380, 1300)):
        source, target, _ = matches(seed, number, 0.2)
        found, expected = solve(source, target), cliques(source, target, SETTINGS)
        again = solve(source, target)  # by the graph, or by a graph again
        graphs.append(len(captured))
        assert torch.equal(found.inliers, expected.inliers)
        assert torch.equal(again.inliers, expected.inliers)
        assert (found.transform is None) == (expected.transform is None)
        if found.transform is not None and expected.transform is not None:
            torch.testing.assert_close(found.transform, expected.transform, atol=1e-6, rtol=0)
            assert again.transform is not None
            assert torch.equal(again.transform, found.transform)  # to the last bit
        if number > 2:
            with pytest.raises(ValueError, match="NaN"):  # what it leaves changes nothing
                solve(source / 0, target)
    assert graphs == [1, 2, 3, 3, 4, 4, 4]  # a pair of two matches needs none
    captured.clear()
    patient = GraphedCliques(SETTINGS, capture=rerun)
    source, target, _ = matches(0, 300, 0.2)
    for pairs in (0, 0, 0, 1, 1):
        patient(source, target)
        assert len(captured) == pairs
    plain = GraphedCliques(SETTINGS)(source, target)  # on a CPU there are no graphs
    assert torch.equal(plain.transform, cliques(source, target, SETTINGS).transform)
    with pytest.raises(ValueError, match="repeats=0"):
        GraphedCliques(SETTINGS, repeats=0)
    few = CliqueSettings(0.05, most=5)  # fewer poses than candidates
    source, target, _ = matches(0, 300, 0.9)
    found = GraphedCliques(few, capture=lambda work: work)(source, target)
    assert torch.equal(found.inliers, cliques(source, target, few).inliers)
    assert [room_for(count) for count in (1, 256, 257, 385, 513, 4097)] == [
        256,
        256,
        384,
        512,
        768,
        6144,
    ]
    with pytest.raises(ValueError, match="NaN"):
        solve(source, source / 0)


def test_two_poses_with_support_are_both_found() -> None:
    (source, target, truth), (more, there, other) = matches(0, 200, 0.4), matches(1, 200, 0.25)
    found = cliques(torch.cat([source, more]), torch.cat([target, there]), SETTINGS).candidates
    assert found is not None
    for place, pose in enumerate((truth, other)):
        assert float(rotation_error(found.transforms[place], pose)) < 1
    assert torch.equal(found.support.sort(descending=True).values, found.support)


def points_apart(number: int) -> tuple[Tensor, Tensor]:
    apart = torch.arange(3.0 * number).reshape(number, 3) ** 2
    return apart, 5 * apart


def test_without_a_group_there_is_no_estimate() -> None:
    for number in (0, 1, 2, 3, 9):
        found = cliques(*points_apart(number), SETTINGS)
        assert found.transform is None
        assert found.inliers.tolist() == [False] * number
    assert cliques_batch([], [], SETTINGS) == []


def test_refusals() -> None:
    points = torch.zeros(5, 3)
    with pytest.raises(ValueError, match=r"\[M, 3\] on both sides"):
        cliques(points, points[:4], SETTINGS)
    with pytest.raises(ValueError, match="NaN"):
        cliques(points, points / 0, SETTINGS)
    with pytest.raises(ValueError, match="1 sources for 0 targets"):
        cliques_batch([points], [], SETTINGS)
    for words, bad in (
        ("distance must be positive", {"distance": 0.0}),
        ("slack must be positive", {"distance": 1.0, "slack": -1.0}),
        ("3 to 2048", {"distance": 1.0, "most": 5000}),
        ("at least 3", {"distance": 1.0, "members": 2}),
        ("at least 1 match leads", {"distance": 1.0, "leaders": 0}),
        ("at least 1 pose", {"distance": 1.0, "candidates": 0}),
    ):
        with pytest.raises(ValueError, match=words):
            CliqueSettings(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("pairs", [1, 2])
@pytest.mark.parametrize("most", [1, 3])
def test_what_is_copied_from_a_device_in_one_go_says_the_same(pairs: int, most: int) -> None:
    made = torch.Generator().manual_seed(0)
    matched = 7  # rows of bytes are no multiple of a float64
    found = Found(
        torch.rand(pairs, most, 3, 4, generator=made, dtype=torch.float64),
        torch.rand(pairs, most, generator=made, dtype=torch.float64) + 0.1,
        torch.rand(pairs, most, matched, generator=made) < 0.5,
        torch.arange(pairs) + 5,
        torch.ones(pairs, dtype=torch.bool),
    )
    counts = [matched, matched - 2][:pairs]
    there, here = solutions_of(packed(found), counts, most), on_host(found, counts)
    for one, other in zip(there, here, strict=True):
        assert torch.equal(one.transform, other.transform)
        assert torch.equal(one.inliers, other.inliers)
        assert torch.equal(one.candidates.support, other.candidates.support)
        assert one.hypotheses == other.hypotheses

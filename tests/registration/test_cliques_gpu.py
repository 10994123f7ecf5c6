"""The solver of cliques on a GPU against the CPU's float64, without a wait."""

import pytest
import torch

from pcnn.metrics.registration import rotation_error
from pcnn.registration.cliques import cliques, cliques_batch, poses
from pcnn.registration.found_poses import on_host
from pcnn.registration.graphed_cliques import GraphedCliques
from pcnn.registration.settings import CliqueSettings
from tests.registration.test_ransac import matches

pytestmark = pytest.mark.gpu
SETTINGS = CliqueSettings(0.05)


def test_a_batch_gives_what_the_cpu_gives() -> None:
    sizes = (400, 0.1), (5000, 0.02), (90, 0.3), (1500, 0.05), (2, 1.0)
    made = [matches(seed, number, right) for seed, (number, right) in enumerate(sizes)]
    sides = [[one[side].cuda() for one in made] for side in (0, 1)]
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        together = cliques_batch(*sides, SETTINGS)
        for (source, target, _), found in zip(made, together, strict=True):
            expected = cliques(source, target, SETTINGS)
            alone = cliques(source.cuda(), target.cuda(), SETTINGS)
            if expected.transform is None:
                assert found.transform is alone.transform is None
                continue
            torch.testing.assert_close(found.transform, expected.transform, atol=1e-3, rtol=0)
            torch.testing.assert_close(alone.transform, expected.transform, atol=1e-3, rtol=0)


def test_poses_wait_for_nothing() -> None:
    made = [matches(seed, number, 0.1) for seed, number in enumerate((700, 3000))]
    sides = torch.zeros(2, 2, 3000, 3, device="cuda")
    for place, pair in enumerate(made):
        for side in (0, 1):
            sides[side, place, : len(pair[side])] = pair[side].cuda()
    counts = torch.tensor([700, 3000], device="cuda")
    poses(*sides, counts, SETTINGS)  # kernels are compiled
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = poses(*sides, counts, SETTINGS)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for solution, (_, _, truth) in zip(on_host(found, [700, 3000]), made, strict=True):
        assert solution.transform is not None
        assert float(rotation_error(solution.transform, truth)) < 2


def test_graphs_give_what_eager_calls_give() -> None:
    solve = GraphedCliques(SETTINGS, repeats=1)
    for seed, number in enumerate((400, 2500, 300, 2400, 3)):
        source, target, _ = (one.cuda() for one in matches(seed, number, 0.1))
        for _ in range(2):
            found, expected = solve(source, target), cliques(source, target, SETTINGS)
            assert (found.transform is None) == (expected.transform is None)
            if expected.transform is not None:
                torch.testing.assert_close(found.transform, expected.transform, atol=1e-4, rtol=0)


def test_coordinates_that_are_not_finite_are_refused() -> None:
    source = torch.rand(50, 3, device="cuda")
    with pytest.raises(ValueError, match="NaN"):
        cliques(source, source / 0, SETTINGS)

"""Solvers of registration on the same matches: how many poses are right, and the time of a pair.

Pairs are made from a seed: matches in a cube of 40 distances, a share of them right but for noise
of a tenth of a distance. ``--engine`` names solvers; ``--rooms`` is the number of pairs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.check import CheckFailed
from benchmarks.engines import Settings
from benchmarks.measured import wall_times
from benchmarks.rows import Row
from benchmarks.run import Case, Options, run
from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.descriptor import random_rotation
from pcnn.registration.estimate import solve_all
from pcnn.registration.settings import SOLVERS, EstimateSettings, RansacSettings
from pcnn.registration.transforms import assembled, transform_points

DISTANCE, MATCHES = 0.05, 2000  # largest residual of a match that agrees [m], and matches of a pair
SHARES = (0.3, 0.1, 0.05)  # shares of right matches; the first is that of the check
ANGLE = 2.0  # a pose is right within this angle [degrees] and a distance

#: Points of matches in source and target ``[M, 3]``, and the true transform ``[4, 4]``.
Pair = tuple[Tensor, Tensor, Tensor]
Solver = Callable[[Pair], Tensor | None]  # a transform ``[4, 4]`` float64, or None


def made_pair(share: float, seed: int) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    source, other = 40 * DISTANCE * torch.rand(2, MATCHES, 3, generator=generator)
    truth = assembled(random_rotation(generator), torch.randn(3, generator=generator).double())
    noise = 0.1 * DISTANCE * torch.randn(MATCHES, 3, generator=generator)
    placed = transform_points(truth, source.double()).float() + noise
    right = (torch.arange(MATCHES) < share * MATCHES)[:, None]
    return source, torch.where(right, placed, other), truth


def solver(name: str, options: Options) -> Solver:
    settings = EstimateSettings(RansacSettings(DISTANCE))
    own = replace(settings, solver=name)  # type: ignore[arg-type]  # a name of `SOLVERS`

    def solve(pair: Pair) -> Tensor | None:
        source, target, _ = (side.to(options.device) for side in pair)
        (found,) = solve_all([source], [target], own)
        return found.transform

    return solve


def is_right(found: Tensor | None, truth: Tensor) -> bool:
    if found is None:
        return False
    found = found.cpu()
    angle, shift = rotation_error(found, truth), translation_error(found, truth)
    return float(angle) < ANGLE and float(shift) < DISTANCE


def _cases(options: Options, figure: str) -> Iterator[Case]:
    for share in SHARES:
        for name in options.engines or SOLVERS:
            row = {"figure": figure, "what": "solver", "engine": name, "n": MATCHES}
            row |= {"workload": f"made, {100 * share:g} % right", "pairs": options.rooms}

            def checked(name: str = name, share: float = share) -> tuple[Solver, float]:
                solve, pair = solver(name, options), made_pair(SHARES[0], 0)
                if not is_right(solve(pair), pair[2]):
                    raise CheckFailed(f"wrong with {SHARES[0]:.0%} right matches")
                return solve, share

            yield Case(row, checked, over_pairs)


def over_pairs(made: tuple[Solver, float], options: Options) -> Iterator[tuple[Settings, Settings]]:
    """One row: right poses [%], and the median time of a pair, each its median of repeats."""
    solve, share = made
    times, right = [], []
    for seed in range(1, 1 + options.rooms):
        pair = made_pair(share, seed)
        spent = wall_times(lambda pair=pair: solve(pair), options.device, options.often)  # type: ignore[misc]
        times.append(statistics.median(spent))
        right.append(is_right(solve(pair), pair[2]))
    yield {}, {"wall_ms": statistics.median(times), "right_percent": 100 * statistics.mean(right)}


FIGURES: dict[str, Callable[[Options, str], Iterator[Row]]] = {
    "solvers": lambda options, figure: run(_cases(options, figure), options)
}

"""The compared solvers, and the check that each passes before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.bench.rows import Row, described
from pcnn.bench.solvers.kiss_matcher import NAME, kiss_matcher
from pcnn.bench.solvers.pairs import MatchedPair
from pcnn.bench.verify import CheckFailed, Proof
from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.descriptor import Described, random_rotation
from pcnn.registration.estimate import solve_all
from pcnn.registration.evidence import PairEvidence
from pcnn.registration.matching import Matches
from pcnn.registration.settings import AGREE, SOLVERS, EstimateSettings
from pcnn.registration.transforms import assembled, transform_points
from pcnn.registration.verifier import best_pose

#: ``cliques`` without the choice among its poses by the clouds: the one with most support.
SUPPORT = "cliques-support"
OWN = (*SOLVERS, SUPPORT)
LINES = (*OWN, NAME)
#: Solvers that compute on any device; the others on the CPU.
ON_DEVICE = ("ransac", "cliques", SUPPORT, "svd")


@dataclass(frozen=True, eq=False)
class Line:
    """A solver on a device.

    Args:
        name: a name in `LINES`.
        where: the device that it computes on, and that its matches lie on.
        solve: a transform [4, 4] float64 on the CPU, or None.
    """

    name: str
    where: torch.device
    solve: Callable[[MatchedPair], Tensor | None]


def lines_on(names: Sequence[str], settings: EstimateSettings, where: torch.device) -> list[Line]:
    """Solvers on the CPU, and on the device those that compute there.

    Raises:
        ValueError: a package that is not installed.
    """
    cpu = torch.device("cpu")
    found = [Line(name, cpu, _solver(name, settings)) for name in names]
    if where.type != "cpu":
        own = [name for name in names if name in ON_DEVICE]
        found += [Line(name, where, _solver(name, settings)) for name in own]
    return found


def _solver(name: str, settings: EstimateSettings) -> Callable[[MatchedPair], Tensor | None]:
    if name == NAME:
        solve = kiss_matcher(settings.ransac.distance / AGREE)
        return lambda pair: solve(pair.source, pair.target)
    (solver,) = (one for one in SOLVERS if one == ("cliques" if name == SUPPORT else name))
    own = replace(settings, solver=solver)  # type: ignore[arg-type]  # a name of the tuple
    cell = settings.ransac.distance / AGREE

    def by_name(pair: MatchedPair) -> Tensor | None:
        (found,) = solve_all([(pair.matches, pair.source, pair.target)], own)
        if name != SUPPORT:
            ends, distance = (pair.source, pair.target), settings.ransac.distance
            seen = PairEvidence(*pair.described, ends, distance, cell, settings.view_points)
            found = best_pose(found, seen)
        return found.transform

    return by_name


def check_line(row: Row, line: Line, distance: float) -> Proof:
    """Hold a solver to the known pose of made matches, 30 % of them right (of ``svd`` all).

    Raises:
        CheckFailed: no transform, one that is not rigid, or one off by more than 2 degrees or the
            distance.
    """
    pair = made_pair(1.0 if line.name == "svd" else 0.3, distance).to(line.where)
    found = line.solve(pair)
    if found is None:
        raise CheckFailed(f"{described(row)}: found no transform of made matches")
    turn = found[:3, :3]
    if not torch.allclose(turn @ turn.mT, torch.eye(3).double(), atol=1e-4) or turn.det() < 0:
        raise CheckFailed(f"{described(row)}: its transform is not rigid")
    angle = float(rotation_error(found, pair.truth))
    shift = float(translation_error(found, pair.truth))
    if not (angle < 2 and shift < distance):
        raise CheckFailed(f"{described(row)}: off by {angle:.2f} degrees and {shift:.3f} m")
    return Proof(row)


def made_pair(right: float, distance: float, number: int = 400) -> MatchedPair:
    """Matches in a cube of 40 distances, a share of them right but for noise of a tenth of one."""
    generator = torch.Generator().manual_seed(0)
    source, other = 40 * distance * torch.rand(2, number, 3, generator=generator)
    truth = assembled(random_rotation(generator), torch.randn(3, generator=generator).double())
    noise = 0.1 * distance * torch.randn(number, 3, generator=generator)
    placed = transform_points(truth, source.double()).float() + noise
    target = torch.where((torch.arange(number) < right * number)[:, None], placed, other)
    rows = torch.arange(number)
    alike = torch.ones(number, 1)
    both = Described(source, alike), Described(target, alike)
    matches = Matches(rows, rows, torch.ones(number))
    return MatchedPair("made", matches, source, target, both, truth, source.double())

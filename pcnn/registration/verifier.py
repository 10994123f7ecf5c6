"""Whether to believe a pose: a logistic model of its evidence, and the best of several poses.

The coefficients stand in `verifiers/` beside this file, a file a network. They were fitted by
`benchmarks/fit_verifier.py` to simulated rooms and drives, many of the pairs of different places,
so that no pose of theirs is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcnn.files.bounded import read_json
from pcnn.registration.evidence import NAMES, PairEvidence
from pcnn.registration.solution import Candidates, Solution

#: Folder of the models that come with the package, named after networks.
SHIPPED = Path(__file__).with_name("verifiers")
WORTH = 0.4  # share of the largest support from which on a pose is looked at


@dataclass(frozen=True)
class Verifier:
    """A logistic model."""

    names: Sequence[str]  # of the evidence that it weighs, some of pcnn.registration.evidence.NAMES
    centre: Sequence[float]  # [F] mean of every number over the poses it was fitted to
    spread: Sequence[float]  # [F] their standard deviation
    choice: Sequence[float]  # [F] coefficients of the standardised numbers
    certainty: Sequence[float]  # [F] the same for the confidence in the pose that was taken
    offset: float  # of the certainty
    threshold: float  # confidence from which on a pose is an answer
    made: str  # how, in words
    evidence: int  # pcnn.registration.evidence.VERSION of the poses it was fitted to

    def best(self, seen: Tensor) -> int:
        """The row of evidence, all columns of `NAMES` [K, E], that speaks most for its pose."""
        return int((self._standard(seen) @ seen.new_tensor(self.choice)).argmax())

    def confidence(self, seen: Tensor) -> float:
        """Probability that the pose with this evidence [E] is right, among pairs as fitted to."""
        certainty = self._standard(seen) @ seen.new_tensor(self.certainty)
        return float(torch.sigmoid(certainty + self.offset))

    def _standard(self, seen: Tensor) -> Tensor:
        columns = seen[..., [NAMES.index(name) for name in self.names]]
        return standard(columns, seen.new_tensor(self.centre), seen.new_tensor(self.spread))


def best_poses(
    solutions: Sequence[Solution], pairs: PairEvidence, verifier: Verifier | None = None
) -> list[Solution]:
    """The poses that the clouds speak most for, in place of the first ones of solutions."""
    poses = [solution.candidates for solution in solutions]
    worth = [0 if some is None else worth_a_look(some) for some in poses]
    if max(worth, default=0) < 2:
        return list(solutions)
    verifier = verifier or shipped_verifier()
    nothing = torch.zeros(0, 4, 4, dtype=torch.float64)
    seen = pairs(
        [
            nothing if some is None else some.transforms[:number]
            for some, number in zip(poses, worth, strict=True)
        ]
    )
    found = []
    for solution, some, number, columns in zip(solutions, poses, worth, seen, strict=True):
        if some is not None and number > 1:
            row = verifier.best(columns)
            solution = replace(solution, transform=some.transforms[row], inliers=some.inliers[row])
        found.append(solution)
    return found


def worth_a_look(poses: Candidates) -> int:
    """How many poses of a solution, from the first on, have support enough to be looked at."""
    return int((poses.support >= WORTH * poses.support[0]).sum())


@cache
def shipped_verifier(network: str = "reg_rooms") -> Verifier:
    """The model that comes with the package."""
    content: Any = read_json(SHIPPED / f"{network}.json")
    return Verifier(**content)


def standard(seen: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """Evidence [K, F] about its mean in standard deviations; 0 where a number is not known."""
    return torch.nan_to_num((seen - centre) / spread, nan=0.0)

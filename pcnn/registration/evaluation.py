"""Every pair of a data set through one pipeline: describe, match, estimate, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from pcnn.datasets.registration.pairs import PairDataset, RegistrationPair
from pcnn.metrics.registration import (
    PairResult,
    Protocol,
    information_rmse,
    judged,
    point_rmse,
)
from pcnn.registration.descriptor import Described, Descriptor, described_all
from pcnn.registration.estimate import Estimate, estimate_all
from pcnn.registration.nearest import nearest_within
from pcnn.registration.settings import EstimateSettings
from pcnn.registration.transforms import transform_points

BATCH, CLOUDS = 16, 8  # pairs that are matched and judged, and clouds described, at once


@dataclass(eq=False)
class Evaluation:
    """Results of all pairs."""

    results: dict[int | None, list[PairResult]] = field(default_factory=dict)
    transforms: dict[int | None, list[Tensor]] = field(default_factory=dict)  # by number of samples


Batches = Sequence[Sequence[RegistrationPair]]
Track = Callable[[Batches, Evaluation], Iterable[Sequence[RegistrationPair]]]


class _DescribedClouds:
    """Described clouds of one scene, each computed once; a new scene drops the last one's."""

    def __init__(self, data: PairDataset, descriptor: Descriptor) -> None:
        self.data, self.descriptor = data, descriptor
        self.scene: str | None = None
        self.held: dict[int, Described] = {}

    def get(self, scene: str, indices: Sequence[int]) -> list[Described]:
        """Described clouds of a scene; those that are new in one batch."""
        if scene != self.scene:
            self.scene, self.held = scene, {}
        new = [index for index in dict.fromkeys(indices) if index not in self.held]
        for at in range(0, len(new), CLOUDS):
            some = new[at : at + CLOUDS]
            names = [f"{scene}, cloud {index}" for index in some]
            clouds = [self.data.cloud(scene, index) for index in some]
            self.held.update(zip(some, described_all(self.descriptor, clouds, names), strict=True))
        return [self.held[index] for index in indices]


def evaluate_pairs(
    data: PairDataset,
    descriptor: Descriptor,
    protocol: Protocol,
    settings: EstimateSettings,
    samples: Sequence[int | None],
    device: torch.device | str = "cpu",
    track: Track = lambda batches, _: batches,
) -> Evaluation:
    """Register every pair at every number of samples."""
    if not data.pairs:
        raise ValueError(f"{data.name}: no pairs to evaluate")
    clouds = _DescribedClouds(data, descriptor)
    # scene by scene, so that every cloud is described once; stable: in the order of the set in each
    scenes = list(dict.fromkeys(pair.scene for pair in data.pairs))
    order = sorted(range(len(data.pairs)), key=lambda at: scenes.index(data.pairs[at].scene))
    batches: list[Sequence[RegistrationPair]] = []
    for _, own in groupby((data.pairs[at] for at in order), key=lambda pair: pair.scene):
        some = list(own)
        batches += [some[at : at + BATCH] for at in range(0, len(some), BATCH)]
    evaluation = Evaluation()
    near = settings.ransac.distance
    for batch in track(batches, evaluation):
        numbers = [pair.source for pair in batch], [pair.target for pair in batch]
        both = clouds.get(batch[0].scene, [*numbers[0], *numbers[1]])
        sources, targets = both[: len(batch)], both[len(batch) :]
        for number in samples:
            estimates = estimate_all(sources, targets, settings, number, device)
            for pair, source, target, estimate in zip(
                batch, sources, targets, estimates, strict=True
            ):
                result = _result(pair, source, target, estimate, protocol, near)
                transform = estimate.solution.transform
                if transform is None:
                    transform = torch.full((4, 4), torch.nan, dtype=torch.float64)
                evaluation.results.setdefault(number, []).append(result)
                evaluation.transforms.setdefault(number, []).append(transform)
    return _in_order_of(evaluation, order)


def _in_order_of(evaluation: Evaluation, order: Sequence[int]) -> Evaluation:
    """Results in the order of the set, of those made in another; ``order[n]`` was the n-th."""
    made = sorted(range(len(order)), key=order.__getitem__)  # when every pair was

    def placed(by_samples: dict[int | None, list[Any]]) -> dict[int | None, list[Any]]:
        return {number: [found[at] for at in made] for number, found in by_samples.items()}

    return Evaluation(placed(evaluation.results), placed(evaluation.transforms))


def _result(
    pair: RegistrationPair,
    source: Described,
    target: Described,
    estimate: Estimate,
    protocol: Protocol,
    distance: float,
) -> PairResult:
    """The result of a pair by its estimate."""
    transform, truth = estimate.solution.transform, pair.transform
    result = judged(pair.id, truth, estimate.source, estimate.target, transform, protocol, distance)
    rmse = torch.tensor(torch.nan)
    if transform is not None and pair.information is not None:
        rmse = information_rmse(transform, truth, pair.information)
    elif transform is not None and protocol.success.rmse is not None:
        # over the points that both clouds hold
        placed = transform_points(truth, source.points.double())
        _, found = nearest_within(placed, target.points, protocol.inlier_distance)
        rmse = point_rmse(transform, truth, source.points[found >= 0].double())
    return replace(result, rmse=float(rmse), index=pair.index, seconds=estimate.seconds)

"""Every pair of a data set through one pipeline: describe, match, estimate, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.registration.pairs import PairDataset, RegistrationPair
from pcnn.files.bounded import named
from pcnn.files.whole_file import whole_file
from pcnn.metrics.registration import (
    JudgedPairs,
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
#: Figures of a pair that a file keeps, before the 16 numbers of its transform.
FIGURES = ("rre", "rte", "rmse", "inlier_ratio", "matches", "inliers", "seconds")
Cloud = tuple[str, int]  # scene, and index in it


class Evaluation:
    """Results of the pairs of a set, in its order, as far as they are measured."""

    def __init__(self, pairs: Sequence[RegistrationPair], samples: Sequence[int | None]) -> None:
        self.pairs, self.samples = pairs, list(samples)
        self.table = np.full((len(self.samples), len(pairs), len(FIGURES) + 16), np.nan)
        self.done = np.zeros(len(pairs), dtype=bool)

    @property
    def results(self) -> dict[int | None, list[PairResult]]:
        """Results of the pairs that are measured, by number of samples."""
        places = np.flatnonzero(self.done).tolist()
        return {
            number: [self._result(self.pairs[at], rows[at].tolist()) for at in places]
            for number, rows in zip(self.samples, self.table, strict=True)
        }

    @property
    def transforms(self) -> dict[int | None, Tensor]:
        """[P, 4, 4] float64 of every pair, NaN where there is none, by number of samples."""
        found = torch.from_numpy(self.table[..., len(FIGURES) :]).unflatten(2, (4, 4))
        return dict(zip(self.samples, found, strict=True))

    @staticmethod
    def _result(pair: RegistrationPair, row: Sequence[float]) -> PairResult:
        figures: dict[str, Any] = dict(zip(FIGURES, row, strict=False))
        counts = {name: int(figures[name]) for name in ("matches", "inliers")}
        return PairResult(*pair.id, **figures | counts, index=pair.index)

    def put(self, sample: int, place: int, result: PairResult, transform: Tensor | None) -> None:
        """Keep the result of a pair at the n-th number of samples."""
        row = self.table[sample, place]
        row[: len(FIGURES)] = [getattr(result, name) for name in FIGURES]
        if transform is not None:
            row[len(FIGURES) :] = transform.flatten().numpy()

    def recall(self, rules: Protocol) -> float:
        """Share of the measured pairs that are registered, of those that count; NaN of none."""
        pairs = JudgedPairs(self.results[self.samples[0]], rules)
        return float(np.mean(pairs.registered[pairs.counted])) if pairs.counted.any() else np.nan

    def write(self, path: Path, key: str) -> None:
        """Keep what is measured in a file; the key says of what."""
        with whole_file(path) as file:
            np.savez(file, key=np.array(key), done=self.done, table=self.table)

    def read(self, path: Path, key: str) -> bool:
        """Take what a file holds, if it is of this key."""
        with named(path, "file of figures"), np.load(path, allow_pickle=False) as held:
            if str(held["key"]) != key or held["table"].shape != self.table.shape:
                return False
            self.done, self.table = held["done"], held["table"]
        return True


def evaluate_pairs(
    data: PairDataset,
    descriptor: Descriptor,
    protocol: Protocol,
    settings: EstimateSettings,
    samples: Sequence[int | None],
    device: torch.device | str = "cpu",
    evaluation: Evaluation | None = None,
    progress: Callable[[int], object] = int,
) -> Evaluation:
    """Register every pair at every number of samples; an evaluation that has begun goes on."""
    pairs = data.pairs
    if not pairs:
        raise ValueError(f"{data.name}: no pairs to evaluate")
    evaluation = evaluation or Evaluation(pairs, samples)
    # scene by scene, so that few clouds are held; stable: in the order of the set in each
    scenes = list(dict.fromkeys(pair.scene for pair in pairs))
    order = sorted(range(len(pairs)), key=lambda at: scenes.index(pairs[at].scene))
    # the same batches whenever it began: a batch is measured whole or not at all
    batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
    batches = [batch for batch in batches if not evaluation.done[batch].all()]
    needed = [_clouds_of(pairs, batch) for batch in batches]
    last = {cloud: number for number, clouds in enumerate(needed) for cloud in clouds}
    coming = _described(data, descriptor, list(last))
    held: dict[Cloud, Described] = {}
    distance = settings.ransac.distance
    for number, batch in enumerate(batches):
        while any(cloud not in held for cloud in needed[number]):
            cloud, described = next(coming)
            held[cloud] = described
        sources = [held[pairs[at].scene, pairs[at].source] for at in batch]
        targets = [held[pairs[at].scene, pairs[at].target] for at in batch]
        for sample, count in enumerate(samples):
            estimates = estimate_all(sources, targets, settings, count, device)
            for at, source, target, one in zip(batch, sources, targets, estimates, strict=True):
                result = _judged(pairs[at], source, target, one, protocol, distance)
                evaluation.put(sample, at, result, one.solution.transform)
        evaluation.done[batch] = True
        progress(len(batch))
        held = {cloud: one for cloud, one in held.items() if last[cloud] > number}
    return evaluation


def _clouds_of(pairs: Sequence[RegistrationPair], batch: Sequence[int]) -> list[Cloud]:
    return [(pairs[at].scene, end) for at in batch for end in (pairs[at].source, pairs[at].target)]


def _described(
    data: PairDataset, descriptor: Descriptor, clouds: Sequence[Cloud]
) -> Iterator[tuple[Cloud, Described]]:
    """Clouds in their order, some in a batch; the next ones are read meanwhile."""
    parts = [clouds[at : at + CLOUDS] for at in range(0, len(clouds), CLOUDS)]

    def read(part: Sequence[Cloud]) -> list[Tensor]:
        return [data.cloud(*cloud) for cloud in part]

    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(read, parts[0] if parts else [])
        for part, following in zip(parts, [*parts[1:], []], strict=True):
            points, coming = coming.result(), reader.submit(read, following)
            names = [f"{scene}, cloud {index}" for scene, index in part]
            yield from zip(part, described_all(descriptor, points, names), strict=True)


def _judged(
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
        points = source.points.double()
        placed = transform_points(truth.to(points.device), points)
        _, found = nearest_within(placed, target.points, protocol.inlier_distance)
        rmse = point_rmse(transform, truth, points[found >= 0].cpu())
    return replace(result, rmse=float(rmse), index=pair.index, seconds=estimate.seconds)

"""Every pair of a data set through one pipeline: describe, match, estimate, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

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
from pcnn.registration.descriptor import CLOUDS, Described, Descriptor, described_all
from pcnn.registration.estimate import Estimate, estimate_all
from pcnn.registration.nearest import nearest_within
from pcnn.registration.settings import EstimateSettings
from pcnn.registration.transforms import transform_points

BATCH = 16  # pairs that are matched and judged at once
Cloud = tuple[str, int]  # scene, and index in it


def evaluate_pairs(
    data: PairDataset,
    descriptor: Descriptor,
    protocol: Protocol,
    settings: EstimateSettings,
    samples: Sequence[int | None],
    device: torch.device | str = "cpu",
    progress: Callable[[int], object] = int,
) -> dict[int | None, list[PairResult]]:
    """Register every pair at every number of samples; progress hears of the pairs of a batch."""
    pairs = data.pairs
    if not pairs:
        raise ValueError(f"{data.name}: no pairs to evaluate")
    # scene by scene, so that few clouds are held; stable: in the order of the set in each
    scenes = list(dict.fromkeys(pair.scene for pair in pairs))
    order = sorted(range(len(pairs)), key=lambda at: scenes.index(pairs[at].scene))
    batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
    needed = [_clouds_of(pairs, batch) for batch in batches]
    last = {cloud: number for number, clouds in enumerate(needed) for cloud in clouds}
    coming = _described(data, descriptor, list(last))
    held: dict[Cloud, Described] = {}
    found: dict[int | None, dict[int, PairResult]] = {count: {} for count in samples}
    distance = settings.ransac.distance
    for number, batch in enumerate(batches):
        while any(cloud not in held for cloud in needed[number]):
            cloud, described = next(coming)
            held[cloud] = described
        sources = [held[pairs[at].scene, pairs[at].source] for at in batch]
        targets = [held[pairs[at].scene, pairs[at].target] for at in batch]
        for count in samples:
            estimates = estimate_all(sources, targets, settings, count, device)
            for at, source, target, one in zip(batch, sources, targets, estimates, strict=True):
                found[count][at] = _judged(pairs[at], source, target, one, protocol, distance)
        progress(len(batch))
        held = {cloud: one for cloud, one in held.items() if last[cloud] > number}
    return {count: [of[at] for at in range(len(pairs))] for count, of in found.items()}


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

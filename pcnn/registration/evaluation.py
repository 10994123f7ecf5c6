"""Every pair of a data set through one pipeline: describe, match, estimate, compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from pathlib import Path

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
from pcnn.metrics.registration.summary import mean_of
from pcnn.registration.descriptor import CLOUDS, Described, Descriptor, described_all
from pcnn.registration.estimate import Estimate, estimate_all
from pcnn.registration.nearest import nearest_within
from pcnn.registration.settings import EstimateSettings
from pcnn.registration.transforms import transform_points

BATCH = 16  # pairs that are matched and judged at once
Cloud = tuple[str, int]  # scene, and index in it
Found = dict[int | None, dict[int, PairResult]]  # by number of samples, and place in the set


def evaluate_pairs(
    data: PairDataset,
    descriptor: Descriptor,
    protocol: Protocol,
    settings: EstimateSettings,
    samples: Sequence[int | None],
    device: torch.device | str = "cpu",
    progress: Callable[[Sequence[int]], object] = len,
    found: Found | None = None,
) -> dict[int | None, list[PairResult]]:
    """Register every pair at every number of samples, less those that were found before.

    What is found is added there, a whole batch, before progress hears of the places of its pairs.
    """
    pairs = data.pairs
    if not pairs:
        raise ValueError(f"{data.name}: no pairs to evaluate")
    # scene by scene, so that few clouds are held; stable: in the order of the set in each
    scenes = list(dict.fromkeys(pair.scene for pair in pairs))
    order = sorted(range(len(pairs)), key=lambda at: scenes.index(pairs[at].scene))
    found = {count: {} for count in samples} if found is None else found
    # the same batches wherever it goes on
    batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
    batches = [batch for batch in batches if any(at not in found[samples[0]] for at in batch)]
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
        for count in samples:
            estimates = estimate_all(sources, targets, settings, count, device)
            for at, source, target, one in zip(batch, sources, targets, estimates, strict=True):
                found[count][at] = _judged(pairs[at], source, target, one, protocol, distance)
        progress(batch)
        held = {cloud: one for cloud, one in held.items() if last[cloud] > number}
    return {count: [of[at] for at in range(len(pairs))] for count, of in found.items()}


def begun(path: Path, key: str, samples: Sequence[int | None]) -> Found:
    """What an evaluation of this key kept in a file before it was interrupted.

    The file goes on with it: a line of the key, and one of every batch. It may be that of the same
    name in a folder beside.
    """
    found: Found = {count: {} for count in samples}
    kept, other = [key], path
    for other in (path, *sorted(path.parent.parent.glob(f"*/{path.name}"))):
        # a killed process may leave a part of a last line
        lines = other.read_text().split("\n")[:-1] if other.is_file() else []
        if lines[:1] == [key]:
            kept = lines
            break
    with named(other, "file of results"):
        for count, at, *fields in (row for line in kept[1:] for row in json.loads(line)):
            found[count][at] = PairResult(*fields)
    with whole_file(path) as file:
        file.write("".join(f"{line}\n" for line in kept).encode())
    if len(kept) > 1 and other != path:
        other.unlink()
    return found


def keep(path: Path, found: Found, batch: Sequence[int]) -> None:
    """Add the results of a batch to a file that `begun` made."""
    rows = [[count, at, *astuple(of[at])] for count, of in found.items() for at in batch]
    with path.open("a") as file:
        file.write(f"{json.dumps(rows)}\n")


def recall(found: Found, rules: Protocol) -> float:
    """Recall of the pairs that are measured, at the first number of samples; NaN of none."""
    pairs = JudgedPairs(list(next(iter(found.values())).values()), rules)
    return mean_of(pairs.registered.astype(float), pairs.counted, pairs.scenes, rules.average)


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

"""Registration: descriptors that are near each other where two clouds show the same place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pcnn.metrics.registration import (
    PairId,
    PairResult,
    Protocol,
    judged,
    summarize,
    validation_protocol,
)
from pcnn.ranges import Count, Degrees, Length, Natural, Seed, Share
from pcnn.registration.descriptor import Described, unit_length
from pcnn.registration.estimate import estimate_all, seed_of
from pcnn.registration.positives import positive_pairs
from pcnn.registration.settings import EstimateSettings
from pcnn.tasks.network_task import NetworkTask
from pcnn.visualize.registration import ShownPair

Result = TypeVar("Result")

MEASURED = 4096  # positives whose distance is logged


class RegistrationTask(NetworkTask):
    """Train a network to describe places, evaluate how well its descriptors find each other again.

    Training: ``loss(source [N, C], target [M, C], batch)`` on descriptors of unit length. Rows of
    both clouds within `positive_radius` under the true transform are positives, searched on the
    device. Evaluation, for every pair: up to `val_samples` random rows of either cloud, each of the
    source with its nearest descriptor of the target; the share of these that are right; a transform
    by RANSAC. The draws depend on the pair's name and `seed` alone.

    A batch has `inputs` (SparseTensors: source and target of B clouds each, or one of 2 B clouds,
    sources first), `source_places` [N, 3] and `target_places` [M, 3] [m], `source_offsets` and
    `target_offsets` [B + 1], `transforms` [B, 4, 4], `positives` [T, 2] and `positive_offsets`
    [B + 1] or None, `with_positives`, `names` [B], `voxel_size` [m] and `batch_size` B.
    """

    def __init__(
        self,
        net: nn.Module,
        loss: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., LRScheduler],
        voxel_size: Length,
        benchmark: str,
        positive_radius: Length = 1.5,
        val_samples: Count = 5000,
        inlier_share: Share = 0.05,
        hit_distance: Length | None = None,
        success_rre: Degrees | None = None,
        success_rte: Length | None = None,
        val_ransac_distance: Length | None = None,
        val_hypotheses: Natural = 1000,
        decay_norms_and_biases: bool = True,
        prefetch_maps: bool = True,
        cuda_graphs: bool = False,
        seed: Seed = 0,
    ) -> None:
        settings = decay_norms_and_biases, prefetch_maps, cuda_graphs
        super().__init__(net, optimizer, scheduler, *settings)
        self.loss = loss
        self.radius = positive_radius * voxel_size  # [m]
        distances = hit_distance, success_rre, success_rte, val_ransac_distance
        self.rules = validation_protocol(benchmark, *distances, val_hypotheses, inlier_share)
        self.samples = val_samples
        self.seed = seed
        self._seen: dict[str, dict[PairId, PairResult]] = {"val": {}, "test": {}}
        self.results: dict[str, list[PairResult]] = {}  # of the last pass, by stage

    def forward(self, tensor: Any) -> Tensor:
        """Descriptors [N, C] of every row, of unit length."""
        return unit_length(self.run(tensor).features)

    def inputs(self, batch: Any) -> tuple[Any, ...]:
        """Both sides of the pairs, or one tensor of both."""
        found: tuple[Any, ...] = batch.inputs
        return found

    def arrived(self, batch: Any) -> Any:
        """The batch with its positives, searched on the device; one that has them stays."""
        if batch.positives is not None:
            return batch
        sources = batch.source_places, batch.source_offsets
        targets = batch.target_places, batch.target_offsets
        return batch.with_positives(
            *positive_pairs(*sources, *targets, batch.transforms, self.radius)
        )

    def sides(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Descriptors of the sources' rows and of the targets'."""
        found = [self(tensor)[: len(tensor.features)] for tensor in batch.inputs]
        if len(found) == 2:
            return found[0], found[1]
        # rows of a geometry lie cloud by cloud, the sources' first
        source, target = found[0].split([len(batch.source_places), len(batch.target_places)])
        return source, target

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        both = self.sides(batch)
        loss: Tensor = self.loss(*both, batch)
        size = max(batch.batch_size, 1)
        self.log_loss(loss, size)
        if self.is_logged:
            self.log_dict(self.seen(*both, batch.positives), batch_size=size)
        self.log_step(len(batch.positives), size)
        return loss

    def seen(self, source: Tensor, target: Tensor, positives: Tensor) -> dict[str, Any]:
        """Figures of a step besides its loss, by name."""
        terms: dict[str, Tensor] = getattr(self.loss, "terms", {})
        found: dict[str, Any] = {f"train/{name}": value for name, value in terms.items()}
        found["train/positives"] = float(len(positives))
        if len(positives):
            found["train/positive_distance"] = mean_distance(source, target, positives)
        return found

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, ShownPair] | None:
        return self.evaluate(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> dict[str, ShownPair] | None:
        return self.evaluate(batch, "test")

    def evaluate(self, batch: Any, stage: str) -> dict[str, ShownPair] | None:
        """Judge the pairs of a batch by their descriptors; returns the first `pair`."""
        if batch.batch_size == 0:
            return None
        names = [str(name) for name in batch.names]
        source, target = self.sides(batch)
        devices = [source.device] if source.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # nothing that training draws depends on validation
            torch.manual_seed(seed_of("/".join(names), self.seed))
            loss = float(self.loss(source, target, batch).detach())
        sources = _clouds(batch.source_places, source, batch.source_offsets)
        targets = _clouds(batch.target_places, target, batch.target_offsets)
        settings = EstimateSettings(self.rules.ransac, seed=self.seed)
        estimates = estimate_all(
            sources, targets, settings, self.samples, source.device, names=names
        )
        for name, truth, one in zip(batch.names, batch.transforms, estimates, strict=True):
            transform = one.solution.transform
            result = judged(name, truth, one.source, one.target, transform, self.rules)
            self._seen[stage][name] = replace(result, loss=loss)
        pair = ShownPair.of(
            names[0],
            sources[0].points,
            targets[0].points,
            estimates[0].solution.transform,
            facts=self._seen[stage][batch.names[0]].facts,
        )
        return {"pair": pair}

    def on_validation_epoch_end(self) -> None:
        self.log_evaluation("val")

    def on_test_epoch_end(self) -> None:
        self.log_evaluation("test")

    def log_evaluation(self, stage: str) -> None:
        """Log all figures of a pass, exact over ranks, and keep its results."""
        own, self._seen[stage] = self._seen[stage], {}
        self.results[stage] = results = gathered(own)
        if results:
            found = figures(results, self.rules)
            self.log_dict({f"{stage}/{name}": value for name, value in found.items()})


def gathered(own: dict[PairId, Result]) -> list[Result]:
    """The results of all ranks, sorted, each pair once: a sampler may fill a rank's last batch up.

    Every rank calls this at the end of a pass and gets the same.
    """
    parts = [own]
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        parts = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(parts, own)
    joined = {name: result for part in parts for name, result in part.items()}
    return [joined[name] for name in sorted(joined)]


def figures(results: Sequence[PairResult], rules: Protocol) -> dict[str, float]:
    """Figures of a pass."""
    summary = summarize(results, rules)
    found = {
        "loss": sum(result.loss for result in results) / len(results),
        "feat_match_ratio": summary.fmr,
        "inlier_ratio": summary.ir,
    }
    if rules.ransac.hypotheses:
        found["rr"] = summary.rr
        if not math.isnan(summary.rre):
            found |= {"rre": summary.rre, "rte": summary.rte}
    return found


def _clouds(places: Tensor, features: Tensor, offsets: Tensor) -> list[Described]:
    sizes = offsets.diff().tolist()
    return [
        Described(*cloud) for cloud in zip(places.split(sizes), features.split(sizes), strict=True)
    ]


@torch.no_grad()
def mean_distance(source: Tensor, target: Tensor, positives: Tensor) -> Tensor:
    """Mean distance of the descriptors of positives [T, 2], T > 0, of some all over the batch."""
    some = positives[:: -(-len(positives) // MEASURED)]
    return (source[some[:, 0]] - target[some[:, 1]]).norm(dim=1).mean()

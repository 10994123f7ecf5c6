"""Figures of the data path: stages of a sample, and a training that waits for its data.

Before anything is timed, samples are compared with float64 and batches of worker processes with
those of this process.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch

from pcnn.bench.environment import processor
from pcnn.bench.rows import Row
from pcnn.bench.suite import Figure
from pcnn.bench.training import Training
from pcnn.bench.verify import CheckFailed
from pcnn.datasets.batches import SegmentationBatch
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.sampler import Key
from pcnn.geometry import PointSet

#: Largest relative error of a voxel's mean in float32.
_MEAN = 1e-5


def check_sample(dataset: CloudDataset, key: Key) -> None:
    """Compare a sample with its cloud, computed once more in float64.

    On voxels: which points share a row, the mean of their inputs, the majority of their labels. On
    native points: every row has the inputs and the label of one point of its cell.

    Raises:
        CheckFailed: they differ.
    """
    cloud, sample = dataset.cloud(key), dataset[key]
    inputs = torch.cat([cloud.points, cloud.features], dim=1).double().numpy()
    labels = np.full(len(inputs), IGNORE) if cloud.labels is None else cloud.labels.numpy()
    rows, found = sample.features.double().numpy(), sample.labels.numpy()
    inverse = sample.geometry.inverse
    assert inverse is not None  # geometries of samples are made from points
    if isinstance(sample.geometry, PointSet):
        chosen = sample.geometry.chosen
        assert chosen is not None
        right = np.array_equal(inputs[chosen], rows) and np.array_equal(labels[chosen], found)
        _require(right, f"{cloud.path}: a row is not the point it stands for")
        return
    cells = np.floor(inputs[:, :3] / np.asarray(dataset.voxel_size, dtype=np.float64))
    _, of_point = np.unique(cells, axis=0, return_inverse=True)  # rows sorted by x, y, z
    of_point = of_point.reshape(-1)
    _require(np.array_equal(of_point, inverse), f"{cloud.path}: other points share a row")
    counts = np.bincount(of_point)
    for channel in range(inputs.shape[1]):
        mean = np.bincount(of_point, inputs[:, channel]) / counts
        error = np.abs(mean - rows[:, channel]).max() / max(1e-30, np.abs(mean).max())
        _require(error < _MEAN, f"{cloud.path}: means of channel {channel} are off by {error:.1e}")
    votes = np.zeros((len(counts), IGNORE), dtype=np.int64)
    np.add.at(votes, (of_point[labels != IGNORE], labels[labels != IGNORE]), 1)
    major = np.where(votes.any(axis=1), votes.argmax(axis=1), IGNORE)
    _require(np.array_equal(major, found), f"{cloud.path}: a row has another label than most")


def check_loading(module: Any, batches: int = 2) -> None:
    """Compare the first batches that worker processes deliver with those made in this process.

    Args:
        module: a data module with a training set, whose workers are counted by ``num_workers``.
        batches: how many.

    Raises:
        CheckFailed: they differ.
    """
    delivered = list(islice(module.train_dataloader(), batches))
    workers, module.num_workers = module.num_workers, 0
    try:
        own = list(islice(module.train_dataloader(), batches))
    finally:
        module.num_workers = workers
    for first, second in zip(delivered, own, strict=True):
        _require(_equal(first, second), f"{first.names}: a worker process made another batch")


def _equal(first: SegmentationBatch, second: SegmentationBatch) -> bool:
    sides = first.tensor, second.tensor
    pairs = [tuple(x.features for x in sides), tuple(x.geometry.keys for x in sides)]
    pairs += zip(first.tensors(), second.tensors(), strict=True)
    return first.names == second.names and all(torch.equal(a, b) for a, b in pairs)


def _require(right: bool, said: str) -> None:
    if not right:
        raise CheckFailed(said)


#: Samples that are measured, after as many that are not.
SAMPLES = 5


def stage_rows(training: Training, figure: str) -> Iterator[Row]:
    """Measure reading, augmenting, placing and collating, and all of it.

    One thread, as in a worker process; time of the core, whatever else the machine does. ``read``
    includes the crop, or is what the cache takes. Medians over samples.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _measured(training, figure)
    finally:
        torch.set_num_threads(threads)


def _measured(training: Training, figure: str) -> Iterator[Row]:
    module, batch_size = training.module, int(training.module.batch_size)
    dataset = module.dataset("train")
    check_sample(dataset, (0, 0))
    collate = module.collate_training()
    times: dict[str, list[float]] = {
        name: [] for name in ("read", "augment", "place", "collate", "sample")
    }
    points = rows = 0
    for number in range(2 * SAMPLES):
        index = number % len(dataset)
        key = (1 + number // len(dataset), index)
        read, _ = _timed(partial(dataset.stored, index))
        changed, cloud = _timed(partial(dataset.cloud, key))
        place, sample = _timed(partial(dataset.geometry.sample, cloud, dataset.voxel_size))
        joined, _ = _timed(partial(collate, [sample] * batch_size))
        whole, _ = _timed(partial(dataset.__getitem__, key))
        if number < SAMPLES:
            continue
        share = joined / batch_size
        measured = (read, changed - read, place, share, whole + share)
        for name, value in zip(times, measured, strict=True):
            times[name].append(value)
        points += cloud.n_points
        rows += sample.geometry.rows
    for name, values in times.items():
        yield Row(
            what="stage",
            workload=training.workload,
            engine="cpu",
            n=points // SAMPLES,
            host_ms=statistics.median(values),
            min_ms=min(values),
            params={"stage": name, "rows": rows // SAMPLES, "cpu": processor(), **training.about},
            figure=figure,
            checked=True,
        )


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = call()
    return 1e3 * (time.process_time() - began), result


def loop_rows(training: Training, figure: str) -> Iterator[Row]:
    """Train, and measure the time of a step and what of it is spent waiting for the loader.

    The device is waited for before the first measured step and after the last one, never between.
    ``wall_ms`` is the time of a step, waits included. ``data_share`` is the share of it that the
    training waited for a batch, ``between_share`` that of everything between two steps: the wait,
    moving the batch, planning its maps on the host. ``longest_wait_ms`` is the longest single wait.

    Raises:
        CheckFailed: workers deliver other batches than this process makes, or the loss is not
            finite.
    """
    check_sample(training.module.dataset("train"), (0, 0))
    check_loading(training.module)
    watch = Watch(training.warm_up)
    trainer = training.trainer([watch], training.warm_up + training.steps)
    trainer.fit(training.task(), training.module)
    if not math.isfinite(watch.loss):
        raise CheckFailed(f"{training.model}: the loss of the training is {watch.loss}")
    step = watch.seconds / len(watch.waits)
    yield Row(
        what="training",
        workload=training.workload,
        engine=training.engine,
        n=watch.rows // len(watch.waits),
        dtype=training.precision,
        model=training.model,
        wall_ms=1e3 * step,
        memory_mb=watch.memory_mb,
        params={
            "data_share": round(sum(watch.waits) / watch.seconds, 4),
            "between_share": round(watch.between / watch.seconds, 4),
            "wait_ms": round(1e3 * statistics.median(watch.waits), 3),
            "longest_wait_ms": round(1e3 * max(watch.waits), 3),
            "points": watch.points // len(watch.waits),
            "batch_size": int(training.module.batch_size),
            "workers": int(training.module.workers),
            "cores": len(os.sched_getaffinity(0)),
            "steps": len(watch.waits),
            **training.about,
        },
        figure=figure,
        checked=True,
    )


class Watch(L.Callback):
    """Times of a training's steps.

    Args:
        warm_up: steps that do not count.

    Attributes:
        seconds: from the first counted step to the last [s].
        waits: seconds that each step waited for its batch.
        between: seconds between steps, waits included.
        points: of all batches.
        rows: of all batches.
        loss: the last one.
        memory_mb: peak memory of the device.
    """

    def __init__(self, warm_up: int) -> None:
        self.warm_up = warm_up
        self.seconds = self.between = self.loss = 0.0
        self.waits: list[float] = []
        self.points = self.rows = 0
        self.memory_mb: float | None = None
        self._done = 0
        self._began = self._end = self._waited = 0.0
        self._outputs: Any = None

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Add what lay between the step before and this one."""
        if self._done < self.warm_up:
            return
        waited = _waited(trainer)
        self.waits.append(waited - self._waited)
        self._waited = waited
        self.between += time.perf_counter() - self._end
        self.points += batch.n_points
        self.rows += batch.tensor.features.shape[0]

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Begin to count after the last step of the warm-up."""
        self._done += 1
        self._outputs = outputs
        if self._done == self.warm_up:
            _wait_for(pl_module.device)
            self._began = time.perf_counter()
            self._waited = _waited(trainer)
        self._end = time.perf_counter()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End with the last step."""
        _wait_for(pl_module.device)
        self.seconds = time.perf_counter() - self._began
        self.loss = float(self._outputs["loss"])
        if pl_module.device.type == "cuda":
            self.memory_mb = torch.cuda.max_memory_allocated(pl_module.device) / 2**20


def _waited(trainer: L.Trainer) -> float:
    loader: Any = trainer.train_dataloader
    return float(loader.seconds_waited)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def linked_set(root: Path, folder: Path, scans: int) -> Path:
    """Write ``sequences/00`` with links to the labelled scans of a set, in turn.

    Args:
        root: a set in SemanticKITTI's layout.
        folder: an empty one.
        scans: number of links.

    Returns:
        ``folder``, a set in the same layout.

    Raises:
        FileNotFoundError: the set holds no labelled scan.
    """
    found = [
        (points, points.parents[1] / "labels" / f"{points.stem}.label")
        for points in sorted(root.glob("sequences/*/velodyne/*.bin"))
    ]
    labelled = [(points, labels) for points, labels in found if labels.is_file()]
    if not labelled:
        raise FileNotFoundError(f"{root}: no labelled scan (sequences/*/velodyne with labels)")
    sequence = folder / "sequences" / "00"
    for name in ("velodyne", "labels"):
        (sequence / name).mkdir(parents=True)
    for number in range(scans):
        points, labels = labelled[number % len(labelled)]
        (sequence / "velodyne" / f"{number:06d}.bin").symlink_to(points.resolve())
        (sequence / "labels" / f"{number:06d}.label").symlink_to(labels.resolve())
    return folder


FIGURES: tuple[Figure[Training], ...] = (
    Figure("stages", "time of one core for a training sample", "", stage_rows),
    Figure("loop", "share of a training's time that waits for data", "", loop_rows),
)

"""The correctness gate of the data path: samples against float64, workers against this process."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import torch

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
    pairs = [(first.tensor.features, second.tensor.features), (first.inverse, second.inverse)]
    pairs += zip(first.tensors(), second.tensors(), strict=True)
    return first.names == second.names and all(torch.equal(a, b) for a, b in pairs)


def _require(right: bool, said: str) -> None:
    if not right:
        raise CheckFailed(said)

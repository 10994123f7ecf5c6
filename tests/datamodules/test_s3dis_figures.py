"""The figures of rooms that a task logs, against a count made apart from the files alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pcnn.datasets.placement import OnPoints, OnVoxels, Placement
from pcnn.losses import CrossEntropy
from pcnn.tasks import EvaluationViews, SegmentationTask
from pcnn.tasks.schedules import constant
from tests.datamodules.modules import plain_trainer, s3dis_module
from tests.datasets.s3dis_rooms import room_arrays, write_set

CELL = 0.5  # [m]: cells hold several classes
ROOMS = {"Area_5/office_1": 900, "Area_5/office_2": 700, "Area_5/WC_1": 1, "Area_5/lobby_1": 0}


class Pointwise(nn.Module):
    """Logits of a row from its own six inputs, fitted so that it is right now and then."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        super().__init__()
        target = nn.functional.one_hot(labels, 13).float()
        self.weight = nn.Parameter(torch.linalg.lstsq(one_more(inputs), target).solution)

    def forward(self, tensor: Any) -> Any:
        return tensor.replace(one_more(tensor.features) @ self.weight)


def one_more(inputs: Tensor) -> Tensor:
    """A column of ones beside [N, 6] inputs."""
    return nn.functional.pad(inputs, (0, 1), value=1.0)


def counted(weight: Tensor, whole: bool) -> dict[str, float]:
    """mIoU and accuracy over the points of the files, each from itself or its cell's mean."""
    intersection, union, right, total = np.zeros(13), np.zeros(13), 0, 0
    for seed, number in enumerate(ROOMS.values()):
        coord, color, truth = room_arrays(number, seed).values()
        if not len(coord):
            continue
        low, high = coord.min(0), coord.max(0)
        moved = coord - np.float32([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
        inputs = np.concatenate([moved, color / 255], axis=1)
        if whole:
            cells: dict[tuple[int, ...], list[int]] = {}
            for point, cell in enumerate(np.floor(moved.astype(float) / CELL).astype(int)):
                cells.setdefault(tuple(cell), []).append(point)
            for points in cells.values():
                inputs[points] = inputs[points].mean(0)
        matrix = weight.detach().double().numpy()
        pred = (inputs @ matrix[:6] + matrix[6]).argmax(1)
        right, total = right + (pred == truth).sum(), total + len(truth)
        for c in range(13):
            intersection[c] += ((pred == c) & (truth == c)).sum()
            union[c] += ((pred == c) | (truth == c)).sum()
    return {"miou": float((intersection / (union + 1e-10)).mean()), "accuracy": right / total}


@pytest.mark.parametrize(
    ("placement", "whole"),
    [(OnVoxels(), True), (OnPoints(), False)],
    ids=["voxel", "point"],
)
def test_figures_of_one_pass_and_of_fragments(tmp_path: Path, placement: Placement, whole: bool):
    root = write_set(tmp_path / "s3dis", ROOMS)
    data = s3dis_module(
        str(root),
        data_dir=str(tmp_path),
        voxel_size=CELL,
        num_workers=0,
        val_batch_size=2,
        geometry=placement,
    )
    data.prepare_data()
    cloud = data.dataset("test").read(2)  # office_1
    net = Pointwise(torch.cat([cloud.points, cloud.features], dim=1), cloud.labels)
    task = SegmentationTask(
        net,
        data.class_names,
        CrossEntropy(),
        partial(torch.optim.SGD, lr=0.1),
        constant,
        views=EvaluationViews(fragments=True),
    )
    trainer = plain_trainer(tmp_path)
    (logged,) = trainer.test(task, data, verbose=False)
    assert int(task.confusion["test"].sum()) == int(task.confusion["test/tta"].sum()) == 1601
    single, own = counted(net.weight, whole), counted(net.weight, False)
    for figure in ("miou", "accuracy"):
        assert logged[f"test/{figure}"] == pytest.approx(single[figure], abs=1e-6)
        # a row that holds one point alone predicts that point: fragments undo the means
        assert logged[f"test/tta/{figure}"] == pytest.approx(own[figure], abs=1e-6)
    assert (single == own) != whole
    assert 0.3 < own["accuracy"] < 1.0
    assert np.isfinite(logged["test/loss"])

"""From rooms in files to weights: rooms of no point, of one, and of one place train along."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcnn.datamodules import CloudDataModule
from pcnn.datasets import OnPoints, OnVoxels, Placement
from pcnn.datasets.s3dis.files import write_array_room
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.losses import CrossEntropy
from pcnn.models import MinkUNet42, ResNet18
from pcnn.tasks import ClassificationTask, EvaluationViews, SegmentationTask
from pcnn.tasks.schedules import constant
from tests.datamodules.modules import room_types_module, s3dis_module
from tests.datasets.s3dis_rooms import write_set
from tests.tasks.quiet import trainer_for

ROOMS = {"Area_1/office_1": 90, "Area_1/WC_1": 1, "Area_1/lobby_1": 0, "Area_5/office_1": 60}
ODD = {"Area_5/hallway_1": 0, "Area_5/WC_1": 1}


def place_of_many(points: int) -> dict[str, np.ndarray]:
    """A room whose points all lie at one place."""
    coord, zeros = np.full((points, 3), 1.5, np.float32), np.zeros(points, np.int16)
    return {"coord": coord, "color": np.zeros((points, 3), np.uint8), "segment": zeros}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("geometry", [OnVoxels(), OnPoints()], ids=["voxel", "point"])
@pytest.mark.parametrize("kind", ["segmentation", "classification"])
def test_odd_rooms_train_along(
    kind: str, geometry: Placement, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_set(tmp_path / "s3dis", ROOMS | ODD)
    write_array_room(root / "Area_1" / "storage_1", **place_of_many(20))
    options: dict[str, Any] = {
        "data_dir": str(tmp_path),
        "train_areas": [1],
        "voxel_size": 0.4,
        "point_max": 40,
        "batch_size": 1,  # so that each of them is a batch of its own
        "val_batch_size": 2,
        "num_workers": 0,
        "geometry": geometry,
    }
    training = partial(torch.optim.SGD, lr=1e-5), constant  # norms of one row have steep gradients
    views = EvaluationViews(fragments=True)
    torch.manual_seed(0)
    data: CloudDataModule
    task: SegmentationTask | ClassificationTask
    if kind == "segmentation":
        data = s3dis_module(str(root), augment=Augmentation(mix3d=0.5), **options)
        net: torch.nn.Module = MinkUNet42(6, 13, width=0.125)
        task = SegmentationTask(net, data.class_names, CrossEntropy(), *training, views=views)
    else:
        data = room_types_module(str(root), augment=Augmentation(), **options)
        net = ResNet18(6, 11, width=0.125)
        task = ClassificationTask(net, data.class_names, CrossEntropy(), *training, views=views)
    trainer = trainer_for(tmp_path, max_steps=4, limit_val_batches=0)
    trainer.fit(task, data)
    assert trainer.global_step == 4
    for name, value in net.state_dict().items():
        assert torch.isfinite(value).all(), name
    (figures,) = trainer.test(task, data, verbose=False)
    assert all(np.isfinite(value) for value in figures.values())
    counted = {"segmentation": 61, "classification": 3}[kind]  # every point, every room
    assert [int(counts.sum()) for counts in task.confusion.values()] == [counted, counted]
    for room in ("Area_1/lobby_1", "Area_5/hallway_1"):
        assert f"the room {room} holds no points" in caplog.text

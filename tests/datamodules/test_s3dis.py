"""S3DIS as a data module: areas, whole rooms in evaluation, simulated rooms in their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pcnn.datamodules import CloudDataModule
from pcnn.datasets import S3DISSets
from pcnn.datasets.placement import OnPoints, OnVoxels, Placement
from pcnn.datasets.transforms.augment import Augmentation
from tests.datamodules.modules import room_types_module, s3dis_module
from tests.datasets.s3dis_rooms import room_arrays, write_set

PLACEMENTS = [OnVoxels(), OnPoints(thin=0.2), OnPoints()]
NAMES = ["voxel", "thinned", "point"]
ROOMS = {
    "Area_1/office_1": 300,
    "Area_2/hallway_1": 250,
    "Area_5/office_1": 280,
    "Area_5/pantry_1": 1,
    "Area_5/WC_1": 0,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_set(tmp_path / "s3dis", ROOMS)


def options(root: Path, **others: object) -> dict[str, object]:
    return {
        "root": str(root),
        "data_dir": str(root.parent / "data"),
        "train_areas": [1, 2],
        "voxel_size": 0.2,
        "point_max": 60,
        "augment": Augmentation(),
        "num_workers": 0,
        **others,
    }


def test_areas():
    for (test, val, train), found in {
        ((5,), None, None): ((1, 2, 3, 4, 6), (5,), (5,)),
        ((2,), None, None): ((1, 3, 4, 5, 6), (2,), (2,)),
        ((2, 3), (), (1,)): ((1,), (), (2, 3)),
        ((5,), (6,), None): ((1, 2, 3, 4), (6,), (5,)),
    }.items():
        areas = S3DISSets(test_areas=test, val_areas=val, train_areas=train).areas
        assert (areas["train"], areas["val"], areas["test"]) == found
    with pytest.raises(ValueError, match="areas are 1 to 6, got 0, 7"):
        S3DISSets(test_areas=[0, 7])
    with pytest.raises(ValueError, match="Area 5 is in train_areas and in"):
        S3DISSets(test_areas=[5], train_areas=[1, 5])


@pytest.mark.parametrize("placement", PLACEMENTS, ids=NAMES)
def test_evaluation_reads_whole_rooms_and_training_parts(root: Path, placement: Placement):
    data = s3dis_module(**options(root, geometry=placement))
    data.prepare_data()
    data.setup("fit")
    assert (data.num_classes, data.in_channels, data.source_kind) == (13, 6, "real")
    stream = data.train_dataloader()
    (first, second) = stream
    assert {first.names[0], second.names[0]} == {"Area_1/office_1", "Area_2/hallway_1"}
    assert first.tensor.features.shape == (60, 6)
    seen = {batch.names[0]: batch for batch in data.val_dataloader()}
    # the same rooms test
    assert data.dataset("test") is data.dataset("val")
    assert list(seen) == ["Area_5/WC_1", "Area_5/office_1", "Area_5/pantry_1"]
    for seed, (name, points) in enumerate(ROOMS.items()):
        if name not in seen:
            continue
        batch = seen[name]
        # every point of the file has a row, and a label to be judged by
        assert len(batch.inverse) == batch.n_points == points
        labels = batch.full_scan(0, batch.point_labels, fill=-1)
        assert labels.tolist() == room_arrays(points, seed).segment.tolist()
    assert data.prediction_path("Area_5/WC_1") == Path("Area_5/WC_1.label")


@pytest.mark.parametrize("placement", PLACEMENTS, ids=NAMES)
def test_types_of_rooms(root: Path, placement: Placement):
    data = room_types_module(**options(root, geometry=placement, batch_size=2, val_batch_size=4))
    data.setup("fit")
    assert (data.num_classes, data.in_channels) == (11, 6)
    assert len(data.colors) == 11
    (batch,) = data.train_dataloader()
    assert sorted(batch.labels.tolist()) == [4, 7]
    assert batch.tensor.geometry.batch_size == 2
    (batch,) = data.val_dataloader()
    assert batch.labels.tolist() == [0, 7, 9]
    # rooms of one point and of none are clouds of the batch
    assert batch.tensor.geometry.batch_offsets.diff()[[0, 2]].tolist() == [0, 1]


def test_an_area_that_is_missing_is_an_error(root: Path):
    data = s3dis_module(**options(root, train_areas=[1, 3]))
    with pytest.raises(FileNotFoundError, match=r"lacks Area_3\. dataset\.allow_missing=true"):
        data.setup("fit")
    data = s3dis_module(**options(root, train_areas=[1, 3], allow_missing=True))
    data.setup("fit")
    assert {room.area for room in data.dataset("train").clouds.rooms} == {1}
    data.setup("test")  # needs Area_5 alone
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        s3dis_module(**options(root / "nowhere")).prepare_data()


@pytest.mark.parametrize("kind", [s3dis_module, room_types_module])
def test_workers_bring_the_same_batches(root: Path, kind: Callable[..., CloudDataModule]):
    def batches(workers: int) -> list[object]:
        data = kind(**options(root, num_workers=workers, val_batch_size=2))
        data.setup("fit")
        return [*data.train_dataloader(), *data.val_dataloader()]

    for one, other in zip(batches(0), batches(2), strict=True):
        assert one.names == other.names
        assert torch.equal(one.tensor.features, other.tensor.features)
        for left, right in zip(one.tensors(), other.tensors(), strict=True):
            assert torch.equal(left, right)
    if kind is s3dis_module:
        assert torch.equal(one.placed(one.points).features, other.placed(other.points).features)

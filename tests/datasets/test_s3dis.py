"""Rooms of S3DIS as samples: coordinates, crops, types, and what is missing."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.datasets.batches import CollateClassification
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_dataset import MIX3D, ClassifiedClouds, CloudDataset
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.placement import OnPoints, OnVoxels, Placement, VoxelSize
from pcnn.datasets.s3dis import CLASS_NAMES, S3DISRooms, room_type
from pcnn.datasets.s3dis.files import RoomArrays, write_array_room
from pcnn.datasets.transforms.augment import Augmentation, sample_generator
from tests.datasets.s3dis_rooms import room_arrays, write_set, write_text

PLACEMENTS = [OnVoxels(), OnPoints(thin=0.2), OnPoints()]
NAMES = ["voxel", "thinned", "point"]
ROOMS = {"Area_1/office_1": 400, "Area_1/WC_1": 300, "Area_5/hallway_1": 200}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_set(tmp_path / "s3dis", ROOMS)


def rooms(root: Path, **options: object) -> CloudDataset:
    return CloudDataset(S3DISRooms(root, [1]), **{"voxel_size": 0.2, **options})


def test_a_room_is_read_with_its_origin_in_the_middle_of_the_floor(root: Path):
    data = rooms(root)
    assert [data.name(i) for i in range(len(data))] == ["Area_1/WC_1", "Area_1/office_1"]
    arrays, cloud = room_arrays(300, 1), data.read(0)
    low, high = arrays.coord.min(0), arrays.coord.max(0)
    origin = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
    np.testing.assert_allclose(cloud.points.numpy(), arrays.coord - origin, atol=1e-5)
    np.testing.assert_allclose(cloud.features.numpy(), arrays.color / 255, atol=1e-6)
    assert cloud.labels.tolist() == arrays.segment.tolist()
    assert cloud.point_index.tolist() == list(range(300))


@pytest.mark.parametrize("placement", PLACEMENTS, ids=NAMES)
def test_training_samples_have_at_most_point_max_rows(root: Path, placement: Placement):
    whole = rooms(root, geometry=placement)
    data = rooms(root, geometry=placement, point_max=60, augment=Augmentation(), seed=3)
    assert whole[0].geometry.rows > 60
    crops = [data[epoch, 0] for epoch in range(3)]
    assert [sample.geometry.rows for sample in crops] == [60] * 3
    assert not torch.equal(crops[0].features, crops[1].features)
    for sample in crops:
        assert sample.points[:, :2].norm(dim=1).min() < 0.05  # the middle, up to the jitter
        assert sample.features.shape[1] == 6
    again = rooms(root, geometry=placement, point_max=60, augment=Augmentation(), seed=3)[2, 0]
    assert torch.equal(crops[2].features, again.features)
    with pytest.raises(ValueError, match="point_max"):
        rooms(root, point_max=0)


def test_a_cache_holds_rooms_not_crops(root: Path, tmp_path: Path):
    options = {"point_max": 60, "cache": tmp_path / "cache"}
    first = [rooms(root, **options)[epoch, 0] for epoch in range(2)]
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 1
    again = [rooms(root, **options)[epoch, 0] for epoch in range(2)]
    assert not torch.equal(first[0].features, first[1].features)
    assert torch.equal(first[1].features, again[1].features)
    # a room that changed is read again
    write_array_room(root / "Area_1" / "WC_1", room_arrays(301, 9))
    assert not torch.equal(first[1].features, rooms(root, **options)[1, 0].features)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=NAMES)
def test_rooms_of_one_point_and_of_none(
    tmp_path: Path, placement: Placement, caplog: pytest.LogCaptureFixture
):
    write_set(tmp_path, {"Area_1/pantry_1": 0})
    write_set(tmp_path, {"Area_1/pantry_2": 1}, "text")
    for point_max in (None, 5):
        data = rooms(tmp_path, geometry=placement, point_max=point_max, augment=Augmentation())
        assert data[0].geometry.rows == 0
        assert data[1].geometry.rows == 1
        assert data[1].geometry.inverse.tolist() == [0]
        assert len(data[1].point_labels) == 1
    assert "the room Area_1/pantry_1 holds no points" in caplog.text


def test_points_without_a_class_are_ignored(tmp_path: Path):
    room = room_arrays(20)
    room.segment[:5] = -1
    write_array_room(tmp_path / "Area_1" / "office_1", room)
    assert rooms(tmp_path).read(0).labels[:6].tolist() == [IGNORE] * 5 + [int(room.segment[5])]


def test_text_and_its_repairs_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    folder = write_text(tmp_path / "Area_1" / "office_19", room_arrays(9))
    (folder / "Annotations" / "ceiling_9.txt").write_bytes(b"1 2 3 103.0\x100000 9 9\n")
    data = rooms(tmp_path)
    assert data.read(0).n_points == data.read(0).n_points == 10
    slow, said = caplog.messages
    assert "1 room is stored as text" in slow
    assert "ceiling_9.txt, line 1: " in said
    assert "103.00000" in said


@pytest.mark.parametrize("placement", PLACEMENTS, ids=NAMES)
def test_types_of_rooms(root: Path, placement: Placement):
    data = ClassifiedClouds(rooms(root, geometry=placement, point_max=50), room_type)
    assert len(data) == 2
    batch = CollateClassification(6, placement)([data[4, 0], data[4, 1]])
    assert batch.labels.tolist() == [0, 7]
    assert batch.names == ("Area_1/WC_1", "Area_1/office_1")
    assert batch.batch_size == batch.tensor.geometry.batch_size == 2
    assert batch.tensor.features.shape == (100, 6)
    assert len(batch.points) == 0  # a training places no point again
    with pytest.raises(ValueError, match="take the batch from an evaluation loader"):
        batch.placed(batch.points)
    data.clouds.gives_raw_points = True
    batch = CollateClassification(6, placement)([data[4, 0], data[4, 1]])
    again = batch.placed(batch.points)
    assert torch.equal(again.features, batch.tensor.features)
    assert len(batch.tensors()) == 4
    double = batch.to("cpu", torch.float64)
    assert double.tensor.features.dtype == torch.float64
    assert double.labels.dtype == torch.int64
    nothing = CollateClassification(6, placement)([])
    assert (nothing.batch_size, nothing.tensor.features.shape) == (0, (0, 6))
    with pytest.raises(ValueError, match="6 input channels, the data set has 5"):
        CollateClassification(5, placement)([data[0]])
    mixed = rooms(root, geometry=placement, point_max=60, augment=Augmentation(mix3d=1.0))
    assert 60 < mixed[0, 0].geometry.rows <= 120  # two crops
    with pytest.raises(ValueError, match=r"a mix of two rooms has no type: .* augment=rooms"):
        ClassifiedClouds(mixed, room_type)


def test_crops_are_drawn_apart_from_changes_and_mixes(root: Path, monkeypatch: pytest.MonkeyPatch):
    drawn: list[float] = []

    def note(cloud: Cloud, generator: np.random.Generator, rows: int, cell: VoxelSize) -> Cloud:
        drawn.append(generator.random())
        return cloud

    monkeypatch.setattr("pcnn.datasets.cloud_dataset.sphere_crop", note)
    data = rooms(root, point_max=60, seed=3)
    for key in ((0, 1), (2, 0)):
        assert data[key] is not None
    others = {
        sample_generator(3, *key, s).random() for key in ((0, 1), (2, 0)) for s in (None, MIX3D)
    }
    assert len(others | set(drawn)) == 6


@pytest.mark.data
def test_the_real_crop(data_root: Path, tmp_path: Path):
    # chairs come before tables, bookcases before sofas where this crop was made
    order = [*range(7), 8, 7, 10, 9, 11, 12]
    with np.load(data_root / "s3dis" / "s3dis_crop.npz") as crop:
        room = RoomArrays(
            crop["xyz"],
            crop["rgb"],
            np.array(order, np.int16)[crop["label"]],
            np.zeros(len(crop["xyz"]), np.int16),
        )
    write_text(tmp_path / "text" / "Area_1" / "office_1", room)
    write_array_room(tmp_path / "arrays" / "Area_1" / "office_1", room)
    held = {}
    for layout in ("text", "arrays"):
        data = rooms(tmp_path / layout, voxel_size=0.05, point_max=5000)
        counts = torch.bincount(data.read(0).labels, minlength=13)
        held[layout] = {CLASS_NAMES[c]: int(n) for c, n in enumerate(counts) if n}
        assert data[0].geometry.rows == 5000
    facts = {"floor": 23139, "wall": 911, "chair": 8700, "table": 8092, "clutter": 726}
    assert held == {"text": facts, "arrays": facts}

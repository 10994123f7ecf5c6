"""Rooms of S3DIS: from files to samples and batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.datasets import OnPoints, OnVoxels, Placement
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.s3dis import Room, S3DISRooms, find_rooms, read_annotation
from pcnn.datasets.s3dis_labels import CLASS_NAMES
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.errors import FileError
from tests.datamodules.modules import s3dis_module
from tests.datasets.s3dis_rooms import room_arrays, write_room, write_set

GOOD = b"1.000 2.000 3.000 10 20 30\n"
PLACEMENTS = [OnVoxels(), OnPoints(thin=0.2), OnPoints()]
placements = pytest.mark.parametrize("placement", PLACEMENTS, ids=["voxel", "thinned", "point"])
ROOMS = {
    **{"Area_1/office_1": 400, "Area_1/WC_1": 300, "Area_2/hallway_1": 250},
    **{"Area_5/office_1": 280, "Area_5/pantry_1": 1, "Area_5/WC_1": 0},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_set(tmp_path / "s3dis", ROOMS)


def rooms(root: Path, **options: object) -> CloudDataset:
    return CloudDataset(S3DISRooms(root, [1]), **{"voxel_size": 0.2, **options})


# -- files


def annotation(tmp_path: Path, text: bytes) -> Path:
    path = tmp_path / "ceiling_1.txt"
    path.write_bytes(text)
    return path


REPAIRED = {
    # as in Area_5/hallway_6: a control character between two numbers
    b"22.3 6.6 3.0 185.0\x10187 182": "22.3 6.6 3.0 185.0 187 182",
    b"22.3 6.6 3.0\x00103 98 90": "22.3 6.6 3.0 103 98 90",
    # as in Area_5/office_19: within a number
    b"22.3 6.6 3.0 103.0\x100000 98.0 90.0": "22.3 6.6 3.0 103.00000 98.0 90.0",
    b"22.3 6.6 3.0 103.0\x10 0000 98 90": "22.3 6.6 3.0 103.00000 98 90",
}


def test_annotations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = [1, 2, 3, 10, 20, 30]
    for line, meant in REPAIRED.items():  # the known corrupt lines, which the log names once
        path = annotation(tmp_path, GOOD + b"\n" + line + b"\n" + GOOD)
        for _ in range(2):
            values = read_annotation(path)
        np.testing.assert_allclose(values, [good, [float(word) for word in meant.split()], good])
        assert [m for m in caplog.messages if meant in m and "line 3" in m and str(path) in m]
    assert len(caplog.messages) == len(REPAIRED)
    assert read_annotation(annotation(tmp_path, b"\n \n")).shape == (0, 6)
    for ending in (b"\r\n", b""):
        assert read_annotation(annotation(tmp_path, GOOD.strip() + ending)).tolist() == [good]
    for line in (
        *(b"1 2 3 4 5", b"1 2 3 4 5 6 7", b"1 2 x 4 5 6", b"1 2 3 4 5 \x10"),
        *(b"1 2 nan 4 5 6", b"1 2 3 4 5 256", b"1 2 3 -1 5 6"),
    ):
        for text in (GOOD * 2 + line + b"\n", line + b"\n"):
            with pytest.raises(FileError) as error:
                read_annotation(annotation(tmp_path, text))
            assert error.value.path == path


def test_a_room_is_all_its_objects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room, folder = room_arrays(300), tmp_path / "hallway_1"
    write_room(folder, room)
    found = Room("Area_1/hallway_1", folder).read()
    np.testing.assert_array_equal(found.points, room["coord"])
    np.testing.assert_allclose(found.features, room["color"] / 255, atol=1e-6)
    np.testing.assert_array_equal(found.labels, room["segment"])
    (folder / "Annotations" / "stairs_1.txt").write_bytes(GOOD)
    (folder / "Annotations" / "beam_1.txt").write_bytes(b"")
    (folder / "Annotations" / "notes.md").write_bytes(b"no point")
    found = Room("Area_1/hallway_1", folder).read()
    assert found.n_points == 301
    assert int((found.labels == CLASS_NAMES.index("clutter")).sum()) == 1
    assert "beam_1.txt" in caplog.messages[0]
    assert "stairs_1.txt" in caplog.messages[1]


# -- samples


def test_rooms_are_read_in_order_with_their_origin_in_the_middle_of_the_floor(root: Path) -> None:
    for more in ("Area_1/office_10", "Area_1/office_2"):
        write_room(root / more, room_arrays(5))
    data = rooms(root)
    names = [data.name(i).removeprefix("Area_1/") for i in range(len(data))]
    assert names == ["WC_1", "office_1", "office_2", "office_10"]
    with pytest.raises(FileNotFoundError, match="Area_4"):
        find_rooms(root, [1, 4])
    (root / "Area_1" / "office_3").mkdir()
    with pytest.raises(FileNotFoundError, match="office_3"):
        find_rooms(root, [1])
    arrays, cloud = room_arrays(300, 1), data.read(0)
    low, high = arrays["coord"].min(0), arrays["coord"].max(0)
    origin = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
    np.testing.assert_allclose(cloud.points.numpy(), arrays["coord"] - origin, atol=1e-5)
    np.testing.assert_allclose(cloud.features.numpy(), arrays["color"] / 255, atol=1e-6)
    assert cloud.labels.tolist() == arrays["segment"].tolist()
    assert cloud.point_index.tolist() == list(range(300))


@pytest.mark.data
def test_the_real_crop(data_root: Path, tmp_path: Path) -> None:
    # chairs come before tables, bookcases before sofas where this crop was made
    order = np.array([*range(7), 8, 7, 10, 9, 11, 12], np.int16)
    with np.load(data_root / "s3dis" / "s3dis_crop.npz") as crop:
        room = {"coord": crop["xyz"], "color": crop["rgb"], "segment": order[crop["label"]]}
    write_room(tmp_path / "Area_1" / "office_1", room)
    data = rooms(tmp_path, voxel_size=0.05, point_max=5000)
    counts = torch.bincount(data.read(0).labels, minlength=13)
    facts = {"floor": 23139, "wall": 911, "chair": 8700, "table": 8092, "clutter": 726}
    assert {CLASS_NAMES[c]: int(n) for c, n in enumerate(counts) if n} == facts
    assert data[0].geometry.rows == 5000


# -- batches


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


@placements
def test_evaluation_reads_whole_rooms_and_training_parts(root: Path, placement: Placement) -> None:
    data = s3dis_module(**options(root, geometry=placement))
    data.prepare_data()
    data.setup("fit")
    assert (data.num_classes, data.in_channels, data.source_kind) == (13, 6, "real")
    train = list(data.train_dataloader())
    names = {"Area_1/office_1", "Area_1/WC_1", "Area_2/hallway_1"}
    assert {batch.names[0] for batch in train} == names
    assert train[0].tensor.features.shape == (60, 6)
    seen = {batch.names[0]: batch for batch in data.val_dataloader()}
    assert list(seen) == ["Area_5/WC_1", "Area_5/office_1", "Area_5/pantry_1"]
    for seed, (name, points) in enumerate(ROOMS.items()):
        if name in seen:  # every point of the file has a row, and a label to be judged by
            batch = seen[name]
            assert len(batch.inverse) == batch.n_points == points
            assert batch.point_labels.tolist() == room_arrays(points, seed)["segment"].tolist()

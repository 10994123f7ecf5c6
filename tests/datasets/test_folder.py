from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.folder import FolderClouds, FolderSets
from pcnn.datasets.labels import IGNORE
from tests.datasets.clouds import scan
from tests.datasets.point_files import ply_bytes, table

CLASSES = ("ground", "tree", "house")


def write(path: Path, n: int = 20, ignored: int = IGNORE) -> None:
    """Write a cloud with labels 0, 1, 2, ignored, 0, ... in the form its suffix asks for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    labels = np.array([0, 1, 2, ignored])[np.arange(n) % 4]
    points = scan(n)
    if path.suffix == ".bin":
        points.tofile(path)
        labels.astype(np.int32).tofile(path.with_suffix(".label"))
    elif path.suffix == ".npy":
        np.save(path, points)
        np.save(path.with_name(f"{path.stem}_label.npy"), labels)
    else:
        rows = table(rows=points)
        rows["label"] = labels
        path.write_bytes(ply_bytes("ascii", rows))


def clouds(root: Path, labels: object = CLASSES, **options: object) -> CloudDataset:
    return CloudDataset(found(root, "train", labels, val_fraction=0.0, **options), voxel_size=1.0)


def found(root: Path, split: str, labels: object = CLASSES, **options: object) -> FolderClouds:
    return FolderClouds(FolderSets(str(root), class_names=labels, **options), split)


def names(root: Path, split: str, **options: object) -> list[str]:
    data = found(root, split, **options)
    return [data.name(i) for i in range(len(data))]


def test_folders_make_the_split(tmp_path: Path):
    write(tmp_path / "other/test/d.bin")  # which is no split without another
    assert names(tmp_path / "other", "train", val_fraction=0.0) == ["test/d"]
    for name in ("train/a.bin", "train/deep/b.npy", "val/c.ply"):
        write(tmp_path / name)
    assert names(tmp_path, "train") == ["train/a", "train/deep/b"]
    assert names(tmp_path, "val") == ["val/c"]
    assert names(tmp_path, "test") == ["val/c"]
    write(tmp_path / "test/d.bin")
    assert names(tmp_path, "test") == ["test/d"]


SIZES = {
    # clouds, shares of validation and test: clouds that train, validate and test
    (1, 0.2, 0.0): (1, 0, 0),
    (2, 0.9, 0.0): (1, 1, 1),
    (2, 0.5, 0.4): (1, 1, 0),
    (3, 0.2, 0.2): (1, 1, 1),
    (4, 0.0, 0.0): (4, 0, 0),
    (10, 0.2, 0.3): (5, 2, 3),
}


def test_some_clouds_train_whatever_the_shares(tmp_path: Path):
    for (n, val_share, test_share), sizes in SIZES.items():
        for i in range(n):
            write(tmp_path / f"{i}.bin", n=4)
        options = {"val_fraction": val_share, "test_fraction": test_share}
        train, val, test = (names(tmp_path, part, **options) for part in ("train", "val", "test"))
        assert (len(train), len(val), len(test)) == sizes, (n, options)
        own_test = [] if test_share == 0 else test
        assert sorted(train + val + own_test) == sorted(str(i) for i in range(n))
        assert own_test or test == val or n < 3


def test_labels_in_a_folder_of_their_own(tmp_path: Path):
    places = {"00/velodyne/7.bin": "00/labels/7.label", "b/clouds/7.ply": "b/label/7_label.npy"}
    for cloud, labels in places.items():
        write(tmp_path / cloud, n=4)
        (tmp_path / labels).parent.mkdir()
    (tmp_path / "00/velodyne/7.label").unlink()
    np.array([2, 1, 0, 2], "<u4").tofile(tmp_path / "00/labels/7.label")
    np.save(tmp_path / "b/label/7_label.npy", np.array([2, 1, 0, 2]))
    data = clouds(tmp_path)
    for at, (cloud, labels) in enumerate(places.items()):
        assert data.name(at) == cloud.rpartition(".")[0]
        assert data.sources(at)[-1] == tmp_path / labels
        assert data.read(at).labels.tolist() == [2, 1, 0, 2]


def test_what_does_not_fit_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        clouds(tmp_path / "none")
    write(tmp_path / "a.npy")
    write(tmp_path / "a.ply")
    with pytest.raises(ValueError, match="have one name"):
        clouds(tmp_path)
    with pytest.raises(ValueError, match="test_fraction"):
        found(tmp_path, "train", test_fraction=0.9)


def test_label_columns_train(tmp_path: Path) -> None:
    points = np.column_stack([scan(60), np.arange(60) % 3]).astype("<f4")
    points.tofile(tmp_path / "a.bin")
    np.save(tmp_path / "b.npy", points)
    for stem in ("readme", "a"):  # beside a cloud of that name
        (tmp_path / f"{stem}.txt").write_text("not a cloud\n")
    columns = ("x", "y", "z", "intensity", "label")
    data = found(tmp_path, "train", ["a", "b", "c"], columns=columns, val_fraction=0.0)
    assert [data.sources(index)[0].name for index in range(len(data))] == ["a.bin", "b.npy"]
    for index in range(len(data)):
        assert data.read(index).labels.tolist() == (np.arange(60) % 3).tolist()

"""Clouds that are kept, in the cache and in shards: the same samples, and what is made again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pcnn.datasets import CloudDataset, OnPoints, OnVoxels, Placement
from pcnn.datasets.cache import CloudCache, ShardedClouds, write_shards
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.semantic_kitti import SemanticKITTI
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.errors import ConfigError, FileError
from tests.cli.invoking import invoke
from tests.datamodules.modules import kitti_module
from tests.datasets.clouds import cloud, write_scan


class Counting:
    """Builds a cloud and counts how often it was asked to."""

    def __init__(self, given: Cloud) -> None:
        self.given, self.built = given, 0

    def __call__(self) -> Cloud:
        self.built += 1
        return self.given


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "scan.bin"
    path.write_bytes(b"1234")
    return path


def kept(cache: CloudCache, source: Path, build: Counting) -> Cloud:
    found = cache.find("08/1", [source])
    return cache.put("08/1", [source], build) if found is None else found


@pytest.mark.parametrize(("n", "labelled"), [(0, True), (1, False), (40, True)])
def test_an_entry_reads_as_it_was_built(tmp_path: Path, source: Path, n: int, labelled: bool):
    given = cloud(n)
    labels = given.labels if labelled else None
    places = given.point_index if labelled else None
    build = Counting(Cloud(given.points, given.features, labels, "08/1", "x", places, 77))
    cache = CloudCache(tmp_path / "cache", {"a": 1})
    for _ in range(3):
        found = kept(cache, source, build)
        for name in ("points", "features", "labels", "point_index"):
            one, other = getattr(found, name), getattr(build.given, name)
            assert one is other is None or torch.equal(one, other), name
        assert (found.name, found.path, found.n_points_total) == ("08/1", "x", 77)
    assert build.built == 1


def test_a_changed_source_or_a_corrupt_entry_rebuilds(
    tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture
):
    cache, build = CloudCache(tmp_path / "cache", {}), Counting(cloud(30))
    kept(cache, source, build)
    os.utime(source, ns=(1, 1))
    kept(cache, source, build)
    source.write_bytes(b"12345")
    os.utime(source, ns=(1, 1))
    kept(cache, source, build)
    assert build.built == 3
    (entry,) = cache.folder.rglob("*.npz")
    whole = entry.read_bytes()
    at = whole.index(build.given.points.numpy().tobytes()) + 5
    flipped = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
    for built, torn in enumerate((b"", whole[:-1], flipped), 4):
        entry.write_bytes(torn)
        caplog.clear()
        for _ in range(2):
            assert torch.equal(kept(cache, source, build).points, build.given.points)
        assert "corrupt cache entry" in caplog.text
        assert build.built == built


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    for sequence, scans in ((0, 3), (8, 2)):
        for frame in range(scans):
            write_scan(tmp_path / "kitti", sequence, frame, 2000)
    return tmp_path / "kitti"


def data(root: Path, cache: bool, **options: Any) -> CloudDataset:
    folder = root / "cache" if cache else None
    clouds = SemanticKITTI(root, [0])
    return CloudDataset(clouds, **{"voxel_size": 2.0, "crop": 15.0, "cache": folder} | options)


@pytest.mark.parametrize("geometry", [OnVoxels(), OnPoints(thin=0.7)], ids=["voxel", "point"])
def test_training_from_the_cache(kitti: Path, geometry: Placement):
    def sample(cache: bool = True, epoch: int = 0, **options: Any) -> Any:
        return data(kitti, cache, geometry=geometry, **options)[epoch, 1]

    fresh, again, plain = sample(), sample(), sample(cache=False)
    assert torch.equal(fresh.features, again.features)
    # without augmentation the same rows, inputs and labels as from all points
    assert torch.equal(fresh.geometry.keys, plain.geometry.keys)
    torch.testing.assert_close(fresh.features, plain.features)
    assert torch.equal(fresh.labels, plain.labels)
    whole = geometry.name == "point"  # a cache of voxels keeps their means alone
    assert fresh.cloud.n_points == (plain.cloud.n_points if whole else fresh.geometry.rows)
    # a crop to some rows comes behind the cache
    changes = {"augment": Augmentation(), "point_max": 60, "seed": 3}
    first, same, other = (sample(epoch=epoch, **changes) for epoch in (2, 2, 3))
    assert torch.equal(first.features, same.features)
    assert not torch.equal(first.features, other.features)
    if whole:
        assert torch.equal(first.features, sample(cache=False, epoch=2, **changes).features)
    assert len(list((kitti / "cache").rglob("*.npz"))) == 1
    sample(voxel_size=1.0)  # on native points the same for every size
    assert len(list((kitti / "cache").rglob("*.npz"))) == (1 if whole else 2)
    data(kitti, True, geometry=OnVoxels() if whole else OnPoints())[0, 1]  # never the other's
    assert len(list((kitti / "cache").rglob("*.npz"))) == (2 if whole else 3)


# -- shards


def module(root: Path, **options: Any) -> Any:
    settings = {"crop": 15.0, "voxel_size": 2.0, "num_workers": 0, "seed": 4, "batch_size": 2}
    settings |= {"train_sequences": [0], "data_dir": str(root.parent / "data"), "limit_train": 3}
    return kitti_module(str(root), **(settings | {"augment": Augmentation()} | options))


@pytest.mark.parametrize("geometry", [OnVoxels(), OnPoints(thin=0.7)], ids=["voxel", "point"])
def test_samples_of_shards_are_those_of_the_cache(
    kitti: Path, tmp_path: Path, geometry: Placement, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pcnn.datasets.cache.SIZE", 10_000)  # of some clouds each
    words = [f"dataset.root={kitti}", f"dataset.data_dir={tmp_path / 'data'}", "dataset.crop=15"]
    words += ["dataset.train_sequences=[0]", "dataset.voxel_size=2.0", f"geometry={geometry.name}"]
    words += ["geometry.thin=0.7"] if geometry.name == "point" else []
    shards = tmp_path / "shards"
    invoke("preprocess", *words, "--no-progress", "--workers", 0, "--shards", shards)
    assert len(list((shards / "train").glob("*.npzs"))) > 1
    own = module(kitti, geometry=geometry)
    far = module(kitti.rename(tmp_path / "gone"), geometry=geometry, shards=str(shards))
    (tmp_path / "gone").rename(kitti)
    far.setup()
    assert (far.source_kind, far.data_root, far.channels) == ("real", shards, own.channels)
    for epoch in (0, 3):
        for index in range(3):
            one, other = own.dataset("train")[epoch, index], far.dataset("train")[epoch, index]
            assert torch.equal(one.features, other.features)
            assert torch.equal(one.labels, other.labels)
            assert one.cloud.name == other.cloud.name
    # a run that goes on at any batch sees what it would have seen
    stream, position = far.train_dataloader(), [0]
    names = [batch.names for _ in range(2) for batch in stream]
    stream = own.train_dataloader()
    assert names == [batch.names for _ in range(2) for batch in stream]
    again = far.train_dataloader()
    again.position = lambda: position[0]
    position[0] = 1
    assert next(iter(again)).names == names[1]
    # validation has every point of the files
    for one, other in zip(own.val_dataloader(), far.val_dataloader(), strict=True):
        assert torch.equal(one.tensor.features, other.tensor.features)
        assert torch.equal(one.point_labels, other.point_labels)
    with pytest.raises(ConfigError, match=r"dataset\.shards"):
        module(kitti, geometry=geometry, shards=str(shards), crop=20.0).setup("fit")
    path = shards / "train" / "0000.npzs"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FileError) as error:
        ShardedClouds(shards / "train").read(0)
    assert error.value.path == path


def test_clouds_that_cannot_be_read_are_left_out_of_shards(
    kitti: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    os.truncate(kitti / "sequences/00/velodyne/000001.bin", 77)
    facts = {"kind": "real", "classes": ["a"]}
    told: list[int] = []
    number = write_shards(data(kitti, True), tmp_path / "s", facts, lambda: told.append(1))
    assert (number, len(told)) == (2, 3)
    assert "000001.bin" in caplog.text
    clouds = ShardedClouds(tmp_path / "s")
    assert [clouds.name(index) for index in range(len(clouds))] == ["00/000000", "00/000002"]
    (tmp_path / "s" / "index.json").write_text("{}")
    with pytest.raises(FileError):
        ShardedClouds(tmp_path / "s")

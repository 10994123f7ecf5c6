from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from pcnn.datasets.cache import CloudCache
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.semantic_kitti import SemanticKITTI
from pcnn.datasets.transforms.augment import Augmentation
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


@pytest.mark.parametrize(("n", "labelled"), [(0, True), (1, False), (40, True)])
def test_an_entry_reads_as_it_was_built(tmp_path: Path, source: Path, n: int, labelled: bool):
    given = cloud(n)
    labels = given.labels if labelled else None
    build = Counting(Cloud(given.points, given.features, labels, "08/1", "x", None, 77))
    cache = CloudCache(tmp_path / "cache", {"a": 1})
    for _ in range(3):
        found = cache.get("08/1", [source], build)
        assert torch.equal(found.points, given.points)
        assert torch.equal(found.features, given.features)
        assert torch.equal(found.labels, labels) if labelled else found.labels is None
        assert (found.name, found.path, found.n_points_total) == ("08/1", "x", 77)
        assert found.point_index is None
    assert build.built == 1


def test_a_changed_source_rebuilds(tmp_path: Path, source: Path):
    cache, build = CloudCache(tmp_path / "cache", {}), Counting(cloud(3))
    cache.get("a", [source], build)
    os.utime(source, ns=(1, 1))
    cache.get("a", [source], build)
    source.write_bytes(b"12345")
    os.utime(source, ns=(1, 1))
    cache.get("a", [source], build)
    assert build.built == 3
    cache.get("a", [source], build)
    assert build.built == 3


def test_every_parameter_makes_another_folder(tmp_path: Path):
    recipes = [{"v": 0.1}, {"v": 0.2}, {"v": 0.1, "crop": None}, {"v": 0.1, "crop": 25.0}]
    assert len({CloudCache(tmp_path, recipe).folder for recipe in recipes}) == 4
    assert (
        CloudCache(tmp_path, {"a": 1, "b": 2}).folder
        == CloudCache(tmp_path, {"b": 2, "a": 1}).folder
    )


def test_a_corrupt_entry_is_rebuilt(tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture):
    cache, build = CloudCache(tmp_path / "cache", {}), Counting(cloud(30))
    cache.get("a", [source], build)
    (entry,) = cache.folder.iterdir()
    whole = entry.read_bytes()
    at = whole.index(build.given.points.numpy().tobytes()) + 5
    flipped = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
    for built, torn in enumerate((b"", whole[:10], whole[:200], whole[:-1], flipped), 2):
        entry.write_bytes(torn)
        caplog.clear()
        for _ in range(2):
            found = cache.get("a", [source], build)
            assert torch.equal(found.points, build.given.points)
        assert "corrupt cache entry" in caplog.text
        assert build.built == built


def test_training_from_the_cache(tmp_path: Path):
    for frame in range(2):
        write_scan(tmp_path, 0, frame, 2000)

    def data(cache: bool, **options: object) -> CloudDataset:
        folder = tmp_path / "cache" if cache else None
        return CloudDataset(
            SemanticKITTI(tmp_path, [0]), voxel_size=2.0, crop=15.0, cache=folder, **options
        )

    fresh, again, plain = data(True)[0, 1], data(True)[0, 1], data(False)[0, 1]
    assert torch.equal(fresh.features, again.features)
    # without augmentation the same cells, means and labels as from all points
    assert torch.equal(fresh.geometry.keys, plain.geometry.keys)
    torch.testing.assert_close(fresh.features, plain.features)
    assert torch.equal(fresh.labels, plain.labels)
    assert len(fresh.points) == fresh.geometry.rows < len(plain.points)
    augmented = [data(True, augment=Augmentation(), seed=3)[2, 1] for _ in range(2)]
    assert torch.equal(augmented[0].features, augmented[1].features)
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 1
    assert not list((tmp_path / "cache").rglob("*.part"))

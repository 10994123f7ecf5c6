"""Clouds on native points: every row is a point of the cloud, and every point finds its row."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from pcnn.datasets import CollateSegmentation, OnPoints, OnVoxels
from pcnn.datasets.batches import SegmentationBatch
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.semantic_kitti import SemanticKITTI
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.geometry import Neighbourhood, PointSet
from tests.datasets.clouds import cloud, write_scan

SIZES = (30, 0, 1, 17)


def batch(placement: OnPoints, *clouds: Cloud) -> SegmentationBatch:
    return CollateSegmentation(4, placement)([placement.sample(c, 1.0) for c in clouds])


def test_rows_are_the_points_with_their_own_features_and_labels():
    given = cloud(300)
    sample = OnPoints().sample(given, 2.0)
    assert isinstance(sample.geometry, PointSet)
    assert sample.geometry.rows == 300
    assert sample.geometry.inverse is not None
    inputs = torch.cat([given.points, given.features], dim=1)
    assert torch.equal(sample.features[sample.geometry.inverse], inputs)
    assert torch.equal(sample.labels[sample.geometry.inverse], given.labels)
    assert sample.point_labels is given.labels


def test_left_out_points_get_what_the_kept_one_of_their_cell_gets():
    given = cloud(500)
    sample = OnPoints(thin=4.0).sample(given, 2.0)
    geometry = sample.geometry
    assert isinstance(geometry, PointSet)
    assert geometry.inverse is not None
    assert geometry.chosen is not None
    assert geometry.rows < 500
    assert len(sample.points) == len(geometry.inverse) == 500
    # the row of a point is the kept point of its cell, with that point's own values
    cells = torch.floor(given.points.double() / 4.0)
    assert torch.equal(cells[geometry.chosen[geometry.inverse]], cells)
    assert torch.equal(sample.features[:, :3], given.points[geometry.chosen])
    assert given.labels is not None
    assert torch.equal(sample.labels, given.labels[geometry.chosen])


def test_options_reach_the_points():
    options = OnPoints("cell_origin", 0.5, outside="drop", volume=2.0, cell=0.6, metric="box")
    geometry = options.sample(cloud(50), (1.0, 1.0, 2.0)).geometry
    assert isinstance(geometry, PointSet)
    assert geometry.downsampling == "cell_origin"
    assert geometry.grid_size == (1.0, 1.0, 2.0)
    assert geometry.neighbourhood == Neighbourhood("drop", 2.0, 0.6, "box")
    with pytest.raises(ValueError, match="volume"):
        OnPoints(volume=0.0)


def test_rows_follow_the_scans():
    joined = batch(OnPoints(), *(cloud(n, seed=n) for n in SIZES))
    assert joined.batch_size == joined.tensor.geometry.batch_size == 4
    assert joined.tensor.features.shape == (sum(SIZES), 4)
    for b, n in enumerate(SIZES):
        given = cloud(n, seed=n)
        part = joined.inverse[joined.scan(b)]
        assert torch.equal(joined.tensor.features[part][:, :3], given.points)
        assert torch.equal(joined.labels[part], given.labels)
    sent = pickle.loads(pickle.dumps(joined))
    assert torch.equal(sent.tensor.features, joined.tensor.features)
    assert torch.equal(sent.inverse, joined.inverse)


def test_tiny_and_empty_batches():
    empty = batch(OnPoints())
    assert (empty.batch_size, empty.n_points) == (0, 0)
    assert isinstance(empty.tensor.geometry, PointSet)
    assert empty.tensor.features.shape == (0, 4)
    for n in (0, 1):
        assert OnPoints(thin=0.5).sample(cloud(n), 1.0).features.shape == (n, 4)
    given = cloud(3)
    bare = Cloud(given.points, given.features, None, "n", "p")
    assert set(OnPoints().sample(bare, 1.0).labels.tolist()) == {IGNORE}


def test_what_does_not_serve_names_the_file():
    given = cloud(2)
    bad = Cloud(given.points, given.features, torch.tensor([0, 256]), "n", "raw.ply")
    with pytest.raises(ValueError, match=r"raw\.ply: labels must be train ids"):
        OnPoints().sample(bad, 0.1)
    nowhere = Cloud(given.points * torch.nan, given.features, None, "n", "scan.bin")
    with pytest.raises(ValueError, match=r"scan\.bin: .*NaN"):
        OnPoints().sample(nowhere, 0.1)
    with pytest.raises(ValueError, match="1 samples of a batch lie on voxels, 1 on native points"):
        CollateSegmentation(4)([OnPoints().sample(given, 1.0), OnVoxels().sample(given, 1.0)])


def test_a_cache_changes_no_sample(tmp_path: Path):
    write_scan(tmp_path, 0, 0, 2000)

    def data(cache: bool, size: float = 2.0, **options: object) -> CloudDataset:
        folder = tmp_path / "cache" if cache else None
        return CloudDataset(
            SemanticKITTI(tmp_path, [0]), voxel_size=size, crop=15.0, cache=folder, **options
        )

    points = OnPoints(thin=0.7)
    plain = data(False, geometry=points, augment=Augmentation())[3, 0]
    for _ in range(2):
        cached = data(True, geometry=points, augment=Augmentation())[3, 0]
        assert torch.equal(cached.features, plain.features)
        assert torch.equal(cached.labels, plain.labels)
    data(True, size=1.0, geometry=points)[0, 0]
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 1  # the same for every size
    assert data(True)[0, 0].geometry.rows < cached.n_points_total
    assert len(list((tmp_path / "cache").rglob("*.npz"))) == 2  # never that of voxels

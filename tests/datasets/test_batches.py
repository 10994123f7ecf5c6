from __future__ import annotations

import io
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

from pcnn.datasets.batches import CollateSegmentation, SegmentationBatch
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.placement import reduce_cloud, voxelize_cloud
from pcnn.datasets.transforms.crops import crop
from tests.datasets.clouds import cloud

SIZES = (30, 0, 1, 17)


def batch(*clouds: Cloud) -> SegmentationBatch:
    return CollateSegmentation(4)([voxelize_cloud(c, 1.0) for c in clouds])


@pytest.fixture
def joined() -> SegmentationBatch:
    return batch(*(cloud(n, seed=n) for n in SIZES))


def test_rows_follow_the_scans(joined: SegmentationBatch):
    assert joined.batch_size == 4
    assert joined.n_points == sum(SIZES)
    assert joined.point_offsets.tolist() == [0, 30, 30, 31, 48]
    assert joined.tensor.geometry.batch_size == 4
    for b, n in enumerate(SIZES):
        one = voxelize_cloud(cloud(n, seed=n), 1.0)
        rows = joined.tensor.geometry.batch_index == b
        assert torch.equal(joined.tensor.features[rows], one.features)
        assert torch.equal(joined.labels[rows], one.labels)
        part = joined.scan(b)
        # every point finds its own voxel
        assert torch.equal(
            joined.tensor.features[joined.inverse[part]], one.features[one.geometry.inverse]
        )
        assert torch.equal(joined.points[part], one.points)


def test_full_scan_puts_values_back_into_the_order_of_the_file():
    given = cloud(100)
    near = crop(given, 10.0)
    assert 0 < near.n_points < 100
    both = batch(cloud(5), near)
    values = torch.arange(both.n_points)
    full = both.full_scan(1, values, fill=-7)
    inside = given.points[:, :2].norm(dim=1) <= 10.0
    assert full.shape == (100,)
    assert full[inside].tolist() == list(range(5, both.n_points))
    assert set(full[~inside].tolist()) == {-7}


def test_means_of_cells_have_no_place_in_a_file():
    reduced = batch(reduce_cloud(cloud(100), 1.0))
    assert reduced.point_index is None
    with pytest.raises(ValueError, match="means of cells"):
        reduced.full_scan(0, reduced.labels, 0)


def test_unlabelled_scans():
    given = cloud(10)
    bare = Cloud(given.points, given.features, None, "bare", "bare.bin", given.point_index)
    assert batch(bare).point_labels is None
    mixed = batch(bare, given).point_labels
    assert mixed is not None
    assert mixed[:10].tolist() == [IGNORE] * 10
    assert given.labels is not None
    assert torch.equal(mixed[10:], given.labels)


def test_no_scan_at_all():
    empty = batch()
    assert (empty.batch_size, empty.n_points, empty.names) == (0, 0, ())
    assert empty.tensor.features.shape == (0, 4)
    assert empty.labels.shape == (0,)
    assert empty.point_offsets.tolist() == [0]


def test_another_number_of_channels_names_the_file():
    given = cloud(3)
    odd = Cloud(given.points, torch.zeros(3, 2), given.labels, "odd", "odd.ply")
    with pytest.raises(ValueError, match=r"odd\.ply: 5 input channels, the data set has 4"):
        batch(given, odd)


def assert_same(one: SegmentationBatch, other: SegmentationBatch) -> None:
    for name in ("labels", "points", "point_labels", "point_offsets", "point_index", "inverse"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert torch.equal(one.tensor.features, other.tensor.features)
    assert torch.equal(one.tensor.geometry.keys, other.tensor.geometry.keys)
    assert (one.names, one.paths) == (other.names, other.paths)
    assert one.n_points_total == other.n_points_total


def test_pickling(joined: SegmentationBatch):
    assert_same(pickle.loads(pickle.dumps(joined)), joined)
    # the pickler that carries batches from workers
    buffer = io.BytesIO()
    ForkingPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(joined)
    assert_same(pickle.loads(buffer.getvalue()), joined)


def test_to_another_device_and_dtype(joined: SegmentationBatch):
    meta = joined.to("meta")
    tensors = (meta.labels, meta.points, meta.point_labels, meta.point_index, meta.inverse)
    assert {t.device.type for t in (*tensors, meta.tensor.features)} == {"meta"}
    assert meta.names == joined.names
    double = joined.to(dtype=torch.float64)
    assert double.tensor.features.dtype == torch.float64
    assert double.points.dtype == torch.float32
    assert double.labels.dtype == torch.int64


@pytest.mark.gpu
def test_pinned_and_moved(joined: SegmentationBatch):
    pinned = joined.pin_memory()
    assert pinned.tensor.features.is_pinned()
    assert pinned.tensor.geometry.keys.is_pinned()
    moved = pinned.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    assert_same(moved.to("cpu"), joined)


@pytest.mark.parametrize(
    ("points", "features", "labels", "message"),
    [
        ((3, 4), (3, 1), None, r"points must be \[P, 3\]"),
        ((3, 3), (2, 1), None, r"features must be \[3, F\]"),
        ((3, 3), (3, 1), 2, "3 points but 2 labels"),
    ],
)
def test_shapes_that_do_not_fit(points, features, labels, message):
    given = None if labels is None else torch.zeros(labels, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        Cloud(torch.zeros(points), torch.zeros(features), given, "n", "p")


def test_crop_keeps_the_border_and_refuses_nonsense():
    points = torch.tensor([[3.0, 4.0, 100.0], [3.0, 4.1, 0.0], [0.0, 0.0, 0.0]])
    given = Cloud(points, points[:, :1], None, "n", "p", torch.arange(3))
    kept = crop(given, 5.0)
    assert kept.point_index is not None
    assert kept.point_index.tolist() == [0, 2]
    assert crop(given, None) is given
    with pytest.raises(ValueError, match="crop"):
        crop(given, 0.0)

from __future__ import annotations

import pytest
import torch

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.placement import majority, reduce_cloud, voxelize_cloud
from tests.datasets.clouds import cloud


def test_inputs_are_means_and_labels_majorities():
    points = torch.tensor([[0.1, 0.1, 0.1], [0.3, 0.1, 0.1], [0.2, 0.4, 0.1], [-0.1, 0.0, 0.0]])
    remission = torch.tensor([[0.0], [0.5], [1.0], [0.25]])
    labels = torch.tensor([3, 1, 1, IGNORE])
    sample = voxelize_cloud(Cloud(points, remission, labels, "n", "p"), 0.5)
    # sorted by x: the cell at x = -1 comes first
    assert sample.geometry.coords.tolist() == [[0, -1, 0, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(
        sample.features, torch.tensor([[-0.1, 0.0, 0.0, 0.25], [0.2, 0.2, 0.1, 0.5]])
    )
    assert sample.labels.tolist() == [IGNORE, 1]
    assert sample.geometry.inverse is not None
    assert sample.geometry.inverse.tolist() == [1, 1, 1, 0]


def test_majority_against_counting():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (3000,), generator=generator)
    labels[torch.rand(3000, generator=generator) < 0.2] = IGNORE
    rows = torch.randint(0, 400, (3000,), generator=generator)
    found = majority(labels, rows, 401)
    for row in range(401):
        votes = [int(v) for v in labels[rows == row] if v != IGNORE]
        # ties go to the smallest id
        expected = max(sorted(set(votes)), key=votes.count) if votes else IGNORE
        assert int(found[row]) == expected


def test_majority_reaches_the_last_class():
    assert majority(torch.tensor([254, 254, 0]), torch.zeros(3, dtype=torch.int64), 1).item() == 254


@pytest.mark.parametrize("n", [0, 1])
def test_tiny_clouds(n: int):
    sample = voxelize_cloud(cloud(n), 0.1)
    assert sample.features.shape == (n, 4)
    assert sample.labels.shape == (n,)
    assert sample.geometry.rows == n


def test_unlabelled_cloud_is_ignored_everywhere():
    given = cloud(20)
    sample = voxelize_cloud(Cloud(given.points, given.features, None, "n", "p"), 1.0)
    assert sample.point_labels is None
    assert set(sample.labels.tolist()) == {IGNORE}


def test_reduced_cloud_has_one_point_in_every_cell():
    given = cloud(500)
    sample, reduced = voxelize_cloud(given, 2.0), reduce_cloud(given, 2.0)
    assert torch.equal(reduced.points, sample.features[:, :3])
    assert reduced.labels is not None
    assert torch.equal(reduced.labels, sample.labels)
    assert reduced.point_index is None
    assert reduced.n_points < given.n_points
    assert voxelize_cloud(reduced, 2.0).geometry.keys.tolist() == sample.geometry.keys.tolist()


@pytest.mark.parametrize("label", [-1, 256])
def test_raw_labels_are_refused(label: int):
    given = cloud(2)
    bad = Cloud(given.points, given.features, torch.tensor([0, label]), "n", "raw.ply")
    with pytest.raises(ValueError, match=rf"raw\.ply: labels must be train ids .*{label}"):
        voxelize_cloud(bad, 0.1)


def test_error_names_the_file():
    points = torch.tensor([[float("nan"), 0.0, 0.0]])
    with pytest.raises(ValueError, match=r"scan\.bin: .*NaN"):
        voxelize_cloud(Cloud(points, points[:, :1], None, "n", "scan.bin"), 0.1)

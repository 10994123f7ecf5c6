"""Clouds on voxels and on native points, alone and in batches, and placed again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pcnn.datasets import CollateClouds, OnPoints, OnVoxels, Placement
from pcnn.datasets.batches import CloudBatch
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.placement import majority
from pcnn.datasets.transforms.crops import crop, sphere_crop
from pcnn.geometry import PointSet, quantize
from tests.datasets.clouds import cloud

SIZE = 4.0  # [m]: some cells of the clouds hold many points
PLACEMENTS = [OnVoxels(), OnPoints(thin=SIZE), OnPoints()]
placements = pytest.mark.parametrize("placement", PLACEMENTS, ids=["voxel", "thinned", "point"])


def batch(*clouds: Cloud, placement: Placement | None = None) -> CloudBatch:
    placement = placement or OnVoxels()
    return CollateClouds(4, placement)([placement.sample(c, 1.0) for c in clouds])


def bare(given: Cloud, **changes: object) -> Cloud:
    return replace(given, labels=None, name="bare", path="bare.bin", **changes)


def test_inputs_are_means_and_labels_majorities():
    points = torch.tensor([[0.1, 0.1, 0.1], [0.3, 0.1, 0.1], [0.2, 0.4, 0.1], [-0.1, 0.0, 0.0]])
    remission = torch.tensor([[0.0], [0.5], [1.0], [0.25]])
    sample = OnVoxels().sample(
        Cloud(points, remission, torch.tensor([3, 1, 1, IGNORE]), "n", "p"), 0.5
    )
    # sorted by x: the cell at x = -1 comes first
    assert sample.geometry.coords.tolist() == [[0, -1, 0, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(
        sample.features, torch.tensor([[-0.1, 0.0, 0.0, 0.25], [0.2, 0.2, 0.1, 0.5]])
    )
    assert sample.labels.tolist() == [IGNORE, 1]
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
    assert majority(torch.tensor([254, 254, 0]), torch.zeros(3, dtype=torch.int64), 1).item() == 254


def test_a_reduced_cloud_has_one_point_in_every_cell():
    given = cloud(500)
    sample, reduced = OnVoxels().sample(given, 2.0), OnVoxels().kept(given, 2.0)
    assert torch.equal(reduced.points, sample.features[:, :3])
    assert torch.equal(reduced.labels, sample.labels)
    assert reduced.n_points < given.n_points
    assert OnVoxels().sample(reduced, 2.0).geometry.keys.tolist() == sample.geometry.keys.tolist()


def test_native_rows_are_points_with_their_own_features_and_labels():
    given = cloud(500)
    inputs = torch.cat([given.points, given.features], dim=1)
    sample = OnPoints().sample(given, 2.0)
    assert isinstance(sample.geometry, PointSet)
    assert sample.geometry.rows == 500
    assert torch.equal(sample.features[sample.geometry.inverse], inputs)
    assert torch.equal(sample.labels[sample.geometry.inverse], given.labels)
    thinned = OnPoints(thin=4.0).sample(given, 2.0)
    geometry = thinned.geometry
    assert geometry.rows < 500 == thinned.cloud.n_points == len(geometry.inverse)
    # the row of a point is the kept point of its cell, with that point's own values
    cells = torch.floor(given.points.double() / 4.0)
    assert torch.equal(cells[geometry.chosen[geometry.inverse]], cells)
    assert torch.equal(thinned.features[:, :3], given.points[geometry.chosen])
    assert torch.equal(thinned.labels, given.labels[geometry.chosen])
    geometry = OnPoints(0.5, memory=2.0).sample(cloud(50), (1.0, 1.0, 2.0)).geometry
    assert (geometry.memory, geometry.voxel_size) == (2.0, (1.0, 1.0, 2.0))


@placements
def test_tiny_and_unlabelled_clouds_and_no_cloud_at_all(placement: Placement):
    for n in (0, 1):
        sample = placement.sample(cloud(n), 0.5)
        assert (sample.features.shape, sample.labels.shape) == ((n, 4), (n,))
    given = cloud(10)
    assert set(placement.sample(bare(given), 1.0).labels.tolist()) == {IGNORE}
    assert batch(bare(given)).point_labels is None
    mixed = batch(bare(given), given, placement=placement).point_labels
    assert mixed[:10].tolist() == [IGNORE] * 10
    assert torch.equal(mixed[10:], given.labels)
    empty = batch(placement=placement)
    assert (empty.batch_size, empty.n_points, empty.names) == (0, 0, ())
    assert (empty.tensor.features.shape, empty.labels.shape) == ((0, 4), (0,))
    assert empty.point_offsets.tolist() == [0]


def test_what_does_not_serve_is_named_with_its_file():
    given = cloud(2)
    raw = replace(given, labels=torch.tensor([0, 256]), path="raw.ply")
    below = replace(given, labels=torch.tensor([0, -1]), path="raw.ply")
    nowhere = replace(given, points=given.points * torch.nan, path="scan.bin")
    for placement in PLACEMENTS:
        for wrong, words in ((raw, "256"), (below, "-1")):
            with pytest.raises(ValueError, match=rf"raw\.ply: labels must be train ids .*{words}"):
                placement.sample(wrong, 0.1)
        with pytest.raises(ValueError, match=r"scan\.bin: .*NaN"):
            placement.sample(nowhere, 0.1)
    odd = replace(given, features=torch.zeros(2, 2), path="odd.ply")
    with pytest.raises(ValueError, match=r"odd\.ply: 5 input channels, the data set has 4"):
        batch(given, odd)
    with pytest.raises(ValueError, match="memory"):
        OnPoints(memory=0.0)
    for shapes, labels, words in (
        (((3, 4), (3, 1)), None, r"points must be \[P, 3\]"),
        (((3, 3), (2, 1)), None, r"features must be \[3, F\]"),
        (((3, 3), (3, 1)), torch.zeros(2), "3 points but 2 labels"),
    ):
        with pytest.raises(ValueError, match=words):
            Cloud(*map(torch.zeros, shapes), labels, "n", "p")


def raw_batch(placement: Placement, *counts: int) -> CloudBatch:
    samples = [placement.sample(cloud(count, seed), SIZE) for seed, count in enumerate(counts)]
    return CollateClouds(4, placement, SIZE)(samples)


@placements
def test_points_are_placed_again(placement: Placement):
    given = raw_batch(placement, 500, 0, 1, 300)
    again = given.placed(given.points)
    torch.testing.assert_close(again.features, given.tensor.features)
    assert torch.equal(again.geometry.inverse, given.inverse)
    assert again.geometry.batch_size == 4
    assert torch.equal(given.to("cpu").raw, given.raw)
    moved = given.points * 0.9 + 0.3
    x = given.placed(moved)
    assert x.geometry.inverse.shape == (given.n_points,)
    with pytest.raises(ValueError, match="evaluation loader"):
        batch(cloud(5)).placed(moved)


def test_crop_keeps_the_border():
    points = torch.tensor([[3.0, 4.0, 100.0], [3.0, 4.1, 0.0], [0.0, 0.0, 0.0]])
    given = Cloud(points, points[:, :1], None, "n", "p", torch.arange(3))
    assert crop(given, 5.0).point_index.tolist() == [0, 2]
    assert crop(given, None) is given


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("cell", [None, 4.0, (4.0, 2.0, 1.0)])
def test_the_nearest_rows_to_a_point_stay_with_all_their_points(cell):
    given = cloud(600)
    part = sphere_crop(given, generator(), 40, cell)
    kept = torch.zeros(600, dtype=torch.bool)
    kept[part.point_index] = True
    centre = given.points[int(generator().random() * 600)]
    middle = centre * torch.tensor([1.0, 1.0, 0.0])
    assert torch.equal(part.points, (given.points - middle)[kept])
    assert torch.equal(part.labels, given.labels[kept])
    places = (given.points - middle).double()
    rows = part.n_points
    if cell is not None:
        size = torch.tensor([cell] * 3 if isinstance(cell, float) else cell).double()
        places = (torch.floor(places / size) + 0.5) * size
        rows = quantize(part.points, voxel_size=cell, batch_size=1).rows
    assert rows == 40
    distance = (places - torch.tensor([0.0, 0.0, float(centre[2])])).norm(dim=1)
    assert distance[kept].max() <= distance[~kept].min() + 1e-12


def test_crops_are_functions_of_their_generator():
    for n in (0, 1, 40):
        given = cloud(n)
        assert sphere_crop(given, generator(), 40, None) is given
        assert sphere_crop(given, generator(), 40, 0.5) is given
    given, used, other = cloud(600), generator(3), generator(3)
    assert sphere_crop(given, generator(), 40, 30.0) is given  # all in a few cells
    first = sphere_crop(given, generator(3), 50, 1.0)
    assert torch.equal(first.points, sphere_crop(given, used, 50, 1.0).points)
    sphere_crop(cloud(1), other, 50, 1.0)
    assert used.random() == other.random()  # always one draw
    assert not torch.equal(first.points, sphere_crop(given, generator(4), 50, 1.0).points)
    bad = cloud(50)
    bad.points[3, 1] = float("nan")
    with pytest.raises(ValueError, match=r"c\.bin: 1 of 50 points"):
        sphere_crop(bad, generator(), 5, 1.0)


@pytest.mark.gpu
@placements
def test_a_cloud_without_labels_is_placed_on_its_device(placement: Placement) -> None:
    given = bare(cloud(30))
    there = replace(given, points=given.points.cuda(), features=given.features.cuda())
    found, wanted = placement.sample(there, SIZE), placement.sample(given, SIZE)
    assert found.features.is_cuda
    assert len(found.features) == len(wanted.features)
    assert found.labels.tolist() == wanted.labels.tolist()

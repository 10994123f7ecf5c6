"""Points of a batch placed anew: all of them, moved, and by fragments."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pcnn.datasets.batches import CollateSegmentation, SegmentationBatch
from pcnn.datasets.placement import OnPoints, OnVoxels, Placement, RawPoints, fragments
from tests.datasets.clouds import cloud

SIZE = 4.0  # [m]: some cells of the clouds hold many points
PLACEMENTS = [OnVoxels(), OnPoints(thin=SIZE), OnPoints()]
NAMES = ["voxel", "thinned", "point"]


def batch_of(placement: Placement, *counts: int) -> SegmentationBatch:
    samples = []
    for seed, count in enumerate(counts):
        given = cloud(count, seed)
        sample = placement.sample(given, SIZE)
        samples.append(replace(sample, raw=RawPoints(given.features, SIZE, placement)))
    return CollateSegmentation(4, placement)(samples)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=NAMES)
def test_all_points_placed_anew_give_the_same_input(placement: Placement):
    batch = batch_of(placement, 500, 0, 1, 300)
    again = batch.placed(batch.points)
    torch.testing.assert_close(again.features, batch.tensor.features)
    assert torch.equal(again.geometry.inverse, batch.inverse)
    assert again.geometry.batch_size == 4
    assert torch.equal(batch.to("cpu").point_features, batch.point_features)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=NAMES)
def test_fragments_give_every_point_a_row_of_its_own(placement: Placement):
    batch = batch_of(placement, 500, 0, 1, 300)
    moved = batch.points * 0.9 + 0.3
    whole = batch.placed(moved)
    seen = torch.zeros(batch.n_points, dtype=torch.int64)
    for rows in batch.fragments(moved):
        x = batch.placed(moved[rows], rows)
        # as many rows as points, and the row of a point holds that very point
        assert x.geometry.rows == len(rows) == whole.geometry.rows
        inputs = torch.cat([moved, batch.point_features], dim=1)[rows]
        assert torch.equal(x.features[x.geometry.inverse], inputs)
        seen[rows] += 1
    assert int(seen.min()) == 1
    counts = torch.bincount(whole.geometry.inverse)
    fullest = int(counts.max())
    # a cell of c points repeats them: each comes floor or ceil of fullest / c times
    times = fullest / counts[whole.geometry.inverse]
    assert bool(((seen >= times.floor()) & (seen <= times.ceil())).all())
    assert len(list(batch.fragments(moved))) == fullest


def test_no_points_have_no_fragments():
    assert list(fragments(torch.empty(0, 3), None, 1.0)) == []
    assert list(batch_of(OnPoints(), 0).fragments(torch.empty(0, 3))) == []


def test_batches_of_training_say_that_they_cannot():
    batch = CollateSegmentation(4)([OnVoxels().sample(cloud(5), SIZE)])
    for call in (batch.placed, batch.fragments):
        with pytest.raises(ValueError, match="evaluation loader"):
            call(batch.points)

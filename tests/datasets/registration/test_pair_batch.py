from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ExponentialLR

from pcnn.datasets import OnPoints, OnVoxels, Placement
from pcnn.datasets.registration import (
    CollatePairs,
    PairAugmentation,
    PairBatch,
    PlacedPairs,
    RegistrationPair,
)
from pcnn.models import ResUNetBN2C
from pcnn.registration.positives import positive_pairs
from pcnn.registration.transforms import inverse, transform_points
from pcnn.tasks import RegistrationTask
from tests.datasets.registration.scenes import world
from tests.registration.poses import random_pose

VOXEL = 0.1
PLACEMENTS = [OnVoxels(), OnPoints(), OnPoints(thin=0.05)]
NAMES = ["voxel", "point", "thinned"]
placements = pytest.mark.parametrize("geometry", PLACEMENTS, ids=NAMES)


class Scene:
    """Pairs whose source is the target in another frame: row p is the place of row p."""

    name, benchmark, ground_truth, source_kind = "scene", "threedmatch", "made", "real"

    def __init__(self, sizes: tuple[int, ...] = (198, 150, 300)) -> None:
        self.sizes = sizes
        self.pairs = [
            RegistrationPair(f"s{place}", 0, 1, random_pose(place), index=place)
            for place in range(len(sizes))
        ]
        self.read = 0

    def cloud(self, scene: str, index: int) -> Tensor:
        self.read += 1
        place = int(scene[1:])
        target = world(place, self.sizes[place])
        if index == 0:
            return target.float()
        return transform_points(inverse(self.pairs[place].transform), target).float()


def samples(geometry: Placement, pairs: Scene | None = None, **options) -> PlacedPairs:
    return PlacedPairs(pairs or Scene(), voxel_size=VOXEL, geometry=geometry, **options)


def batch_of(data: PlacedPairs, epoch: int = 0) -> PairBatch:
    return CollatePairs(data.geometry, VOXEL)([data[epoch, i] for i in range(len(data))])


def positives(batch: PairBatch, radius: float) -> tuple[Tensor, Tensor]:
    source, target = batch.source_places, batch.target_places
    offsets = batch.source_offsets, batch.target_offsets
    return positive_pairs(source, offsets[0], target, offsets[1], batch.transforms, radius)


@placements
def test_a_batch_is_what_it_says(geometry: Placement) -> None:
    batch = batch_of(samples(geometry))
    assert batch.batch_size == 3
    assert [str(name) for name in batch.names] == [f"s{n}/1 onto 0" for n in range(3)]
    for tensor, places, offsets, index in (
        (batch.inputs[0], batch.source_places, batch.source_offsets, 1),
        (batch.inputs[1], batch.target_places, batch.target_offsets, 0),
    ):
        assert tensor.geometry.batch_size == 3
        assert torch.equal(tensor.features, torch.ones(len(places), 1))
        assert places.shape == (tensor.geometry.rows, 3)
        assert int(offsets[-1]) == len(places)
        clouds = tensor.geometry.coords[:, 0] if geometry.name == "voxel" else None
        for b in range(3):
            own = places[offsets[b] : offsets[b + 1]]
            points = Scene().cloud(f"s{b}", index)
            if geometry.name == "voxel":  # means of the points of each voxel
                assert bool((clouds[offsets[b] : offsets[b + 1]] == b).all())
                cells = torch.floor(own.double() / VOXEL)
                expected = torch.unique(torch.floor(points.double() / VOXEL), dim=0)
                assert torch.equal(torch.unique(cells, dim=0), expected)
                assert float(own.mean()) == pytest.approx(float(points.mean()), abs=0.05)
            else:  # points themselves
                assert {tuple(row) for row in own.tolist()} <= set(map(tuple, points.tolist()))
                assert len(own) == len(points) or geometry.thin is not None
    assert batch.transforms.dtype == torch.float64
    torch.testing.assert_close(batch.transforms[2], random_pose(2))


@pytest.mark.parametrize("augmented", [False, True])
def test_positives_are_the_same_points_after_augmentation(augmented: bool) -> None:
    options = {"rotation": 180.0, "scale": (0.8, 1.2), "shift": 1.0}
    augment = PairAugmentation(**options) if augmented else None
    batch = batch_of(samples(OnPoints(), augment=augment))
    found, offsets = positives(batch, 1e-4)
    assert offsets.diff().tolist() == [198, 150, 300]
    # rows of a cloud are sorted by cell: name each by its point of the file
    assert batch.inputs[0].geometry.chosen is not None
    assert batch.inputs[1].geometry.chosen is not None
    of_source = batch.inputs[0].geometry.chosen[found[:, 0]]
    of_target = batch.inputs[1].geometry.chosen[found[:, 1]]
    assert torch.equal(of_source, of_target)


@placements
def test_an_empty_cloud_is_named_and_stays(
    geometry: Placement, caplog: pytest.LogCaptureFixture
) -> None:
    data = samples(geometry, Scene((198, 0, 300)), augment=PairAugmentation(), feature_noise=0.01)
    with caplog.at_level(logging.WARNING):
        batch = batch_of(data)
        batch_of(data, epoch=1)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"scene: cloud {index} of s1 is empty; its pairs contribute nothing" for index in (1, 0)
    ]
    assert batch.source_offsets.diff()[1] == 0
    assert batch.inputs[0].geometry.batch_size == 3
    _, offsets = positives(batch, 0.15)
    assert offsets[1] == offsets[2]
    assert offsets[3] > offsets[2] > 0


@placements
def test_no_pairs_make_a_batch_of_none(geometry: Placement) -> None:
    batch = CollatePairs(geometry, VOXEL)([])
    assert batch.batch_size == 0
    assert batch.inputs[0].features.shape == (0, 1)
    assert batch.transforms.shape == (0, 4, 4)
    assert batch.source_offsets.tolist() == [0]
    once = CollatePairs(geometry, VOXEL, one_pass=True)([])
    assert (once.batch_size, len(once.inputs)) == (0, 1)


@pytest.mark.parametrize("geometry", PLACEMENTS[:2], ids=NAMES[:2])
def test_one_pass_describes_what_two_do(geometry: Placement) -> None:
    data = samples(geometry, Scene((60, 1, 90)))
    pairs = [data[0, i] for i in range(3)]
    apart, once = (CollatePairs(geometry, VOXEL, one_pass)(pairs) for one_pass in (False, True))
    assert len(apart.inputs) == 2
    (both,) = once.to("cpu").inputs
    assert both.geometry.batch_size == 6
    assert torch.equal(both.features, torch.cat([side.features for side in apart.inputs]))
    net = ResUNetBN2C(1, 4, width=0.125).eval().double()
    task = RegistrationTask(net, nn.Identity(), SGD, ExponentialLR, VOXEL, "threedmatch").eval()
    batches = (batch.to("cpu", torch.float64) for batch in (apart, once))
    with torch.no_grad():
        two, one = (task.sides(batch) for batch in batches)
    for sides in zip(two, one, strict=True):
        torch.testing.assert_close(*sides)

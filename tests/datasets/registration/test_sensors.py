"""Clouds as other sensors would have measured them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pcnn.datasets.registration import PairAugmentation
from pcnn.datasets.registration.sensors import (
    LEAST,
    AnySensor,
    Beams,
    DepthCamera,
    RangeNoise,
    RangeThinning,
    Sensor,
    Sparser,
    ranges,
)
from pcnn.datasets.transforms.augment import sample_generator
from tests.datasets.registration.scenes import Pair

ALL = (
    *(Beams(), RangeThinning(), Sparser((500, 900)), RangeNoise(), DepthCamera()),
    AnySensor((Beams(), (RangeThinning(), RangeNoise())), probability=0.8),
)


def shell(points: int = 20000, farthest: float = 12.0) -> Tensor:
    """Points all around a sensor, 1 m to ``farthest`` away, 30 degrees up and down at most."""
    generator = torch.Generator().manual_seed(0)
    share = torch.rand(3, points, generator=generator, dtype=torch.float64)
    azimuth, elevation = share[0] * 6.2831853, (share[1] - 0.5) * 1.0471976
    flat = elevation.cos()
    rays = torch.stack([flat * azimuth.cos(), flat * azimuth.sin(), elevation.sin()], 1)
    return (rays * (1 + (farthest - 1) * share[2])[:, None]).float()


def changed(sensor: Sensor, points: Tensor, index: int = 0) -> Tensor:
    return sensor(points, sample_generator(0, 0, index))


@pytest.mark.parametrize("sensor", ALL, ids=lambda one: type(one).__name__)
def test_a_function_of_the_cloud_and_the_generator_that_leaves_no_cloud_without_points(
    sensor: Sensor,
) -> None:
    points = shell()
    before = points.clone()
    results = [changed(sensor, points, index) for index in range(4)]
    assert torch.equal(points, before)
    assert any(len(one) != len(points) or not torch.equal(one, points) for one in results)
    for index, one in enumerate(results):
        assert one.dtype == torch.float32
        assert bool(torch.isfinite(one).all())
        assert LEAST <= len(one) <= len(points)
        assert torch.equal(changed(sensor, points, index), one)
        strided = points.T.contiguous().T  # as other changes leave points in memory
        assert torch.equal(changed(sensor, strided, index), one)
    for few in (points[:0], points[:1], torch.zeros(3, 3)):
        found = changed(sensor, few)
        assert found.shape == few.shape
        assert bool(torch.isfinite(found).all())


def test_pairs_take_sensors_before_all_else_and_each_cloud_by_itself() -> None:
    pair = Pair(shell(3000), shell(2500), torch.eye(4, dtype=torch.float64))
    # a sensor sees metres of its own frame: neither the turned nor the scaled cloud
    camera = DepthCamera((5.0, 5.0), 0.0, 0.0)
    near = PairAugmentation(rotation=90.0, scale=(3.0, 3.0), sensors=(camera,))
    cut = Pair(*near(pair, sample_generator(1, 0, 0)))
    for own, given in ((cut.source, pair.source), (cut.target, pair.target)):
        assert len(own) == int((ranges(given) <= 5.0).sum()) < len(given)
    thinner = PairAugmentation(rotation=0.0, sensors=(Sparser((400, 800)), RangeNoise()))
    found = Pair(*thinner(pair, sample_generator(1, 0, 0)))
    assert len(found.source) < 1100
    assert len(found.target) < 1100
    assert len(found.source) != len(found.target)  # each cloud by itself
    assert torch.equal(found.transform, pair.transform)

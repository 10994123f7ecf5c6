from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pcnn.datasets.registration.augment import PairAugmentation
from pcnn.datasets.registration.sensors import (
    LEAST,
    AnySensor,
    Beams,
    DepthCamera,
    RangeNoise,
    RangeThinning,
    Sensor,
    Sparser,
)
from pcnn.datasets.transforms.augment import sample_generator
from pcnn.registration.transforms import inverse, transform_points
from tests.datasets.registration.scenes import Pair, world
from tests.registration.poses import random_pose, shifted

ALL = {
    "scale": (0.8, 1.2),
    "shift": 1.0,
    "jitter": 0.01,
    "depth_noise": 0.002,
    "warp": 0.01,
    "drop": 0.3,
}


def same_places(transform: Tensor, points: int = 300) -> Pair:
    """Row p of the source is the place of row p of the target."""
    target = world(points=points)
    source = transform_points(inverse(transform), target)
    return Pair(source.float(), target.float(), transform)


def residual(pair: Pair) -> Tensor:
    """How far the transform leaves each row from its partner [m]."""
    moved = transform_points(pair.transform, pair.source.double())
    return (moved - pair.target.double()).norm(dim=1)


@pytest.mark.parametrize(
    "options",
    [
        {"rotation": 180.0},
        {"rotation": 180.0, "axis": "vertical"},
        {"rotation": 180.0, "scale": (0.5, 2.0), "scale_probability": 1.0, "shift": 2.0},
        {"rotation": 0.0},
    ],
)
def test_places_stay_the_same_under_the_new_transform(options: dict) -> None:
    pair = same_places(shifted(8.0, -6.0, 1.0) @ random_pose(1))
    augment = PairAugmentation(**options)
    for seed in range(5):
        changed = Pair(*augment(pair, sample_generator(seed, 0, 0)))
        assert float(residual(changed).max()) < 2e-5
        turn = changed.transform[:3, :3]
        eye = torch.eye(3, dtype=torch.float64)
        torch.testing.assert_close(turn @ turn.mT, eye, atol=1e-12, rtol=0)
        assert changed.source.dtype == torch.float32
        assert changed.transform.dtype == torch.float64


def test_threads_do_not_change_a_bit() -> None:
    pair = same_places(random_pose(6), 40_000)  # more than one thread takes at once
    augment, threads = PairAugmentation(**ALL), torch.get_num_threads()
    try:
        found = []
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(Pair(*augment(pair, sample_generator(0, 0, 0))).source)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_tiny_clouds_and_numbers_that_are_refused() -> None:
    pair = same_places(random_pose(7), 300)
    for rows in (0, 1):
        tiny = Pair(pair.source[:rows], pair.target, pair.transform)
        changed = Pair(*PairAugmentation(**ALL)(tiny, sample_generator(0, 0, 0)))
        assert changed.source.shape == (rows, 3)
        assert bool(changed.transform.isfinite().all())
    for options, words in (
        ({"rotation": 181.0}, "rotation"),
        ({"scale": (1.2, 0.8)}, "scale"),
        ({"warp": float("nan")}, "warp"),
        ({"drop": 1.0}, "drop"),
        ({"uniform_rotations": True, "axis": "vertical"}, "axis"),
    ):
        with pytest.raises(ValueError, match=words):
            PairAugmentation(**options)


SENSORS = (
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


@pytest.mark.parametrize("sensor", SENSORS, ids=lambda one: type(one).__name__)
def test_a_function_of_the_cloud_and_the_generator_that_leaves_no_cloud_without_points(
    sensor: Sensor,
) -> None:
    points = shell()
    results = [changed(sensor, points, index) for index in range(4)]
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

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pcnn.datasets.transforms import augment
from pcnn.datasets.transforms.augment import Augmentation, sample_generator
from tests.datasets.clouds import cloud


def generator(epoch: int = 0) -> np.random.Generator:
    return sample_generator(7, epoch, 3)


def test_generator_is_a_function_of_seed_epoch_and_index():
    draws = {
        key: sample_generator(*key).random()
        for key in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1)]
    }
    assert len(set(draws.values())) == 6
    assert sample_generator(0, 1, 0).random() == draws[0, 1, 0]


def test_rotation_keeps_height_and_distance():
    before = cloud(100)
    after = augment.rotate_z(before, generator())
    assert torch.equal(after.points[:, 2], before.points[:, 2])
    torch.testing.assert_close(after.points[:, :2].norm(dim=1), before.points[:, :2].norm(dim=1))
    assert not torch.allclose(after.points, before.points, atol=0.1)
    x, y = before.points[:, 0], before.points[:, 1]
    turned = torch.atan2(after.points[:, 1], after.points[:, 0]) - torch.atan2(y, x)
    turned = torch.remainder(turned, 2 * math.pi)
    torch.testing.assert_close(turned, turned[:1].expand(100), atol=1e-4, rtol=0)


def test_rotation_takes_every_angle():
    angles = []
    for epoch in range(400):
        point = augment.rotate_z(cloud(1), generator(epoch)).points[0]
        angles.append(math.atan2(float(point[1]), float(point[0])))
    quarters = np.histogram(angles, bins=4, range=(-math.pi, math.pi))[0]
    assert (np.abs(quarters - 100) < 45).all()


def test_scale_is_one_factor_in_range():
    before = cloud(100)
    ratio = augment.scale(before, generator(), 0.9, 1.1).points / before.points
    torch.testing.assert_close(ratio, ratio[:1, :1].expand(100, 3))
    assert 0.9 <= float(ratio[0, 0]) <= 1.1
    assert float(ratio[0, 0]) != 1.0


def test_flip_mirrors_x_and_y_independently():
    before = cloud(1)
    signs = {
        tuple((augment.flip(before, generator(e)).points / before.points)[0].tolist())
        for e in range(40)
    }
    assert signs == {(1, 1, 1), (-1, 1, 1), (1, -1, 1), (-1, -1, 1)}


def test_jitter_has_the_given_deviation():
    before = cloud(20_000)
    noise = augment.jitter(before, generator(), 0.02).points - before.points
    assert float(noise.std()) == pytest.approx(0.02, rel=0.02)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.0005)


def test_drop_keeps_rows_together_and_their_places():
    before = cloud(1000)
    after = augment.drop(before, generator(), 0.3)
    assert 630 < after.n_points < 770
    assert after.point_index is not None
    assert after.labels is not None
    assert before.labels is not None
    assert torch.equal(after.points, before.points[after.point_index])
    assert torch.equal(after.labels, before.labels[after.point_index])
    assert after.n_points_total == 1000


@pytest.mark.parametrize("degrees", [30.0, 120.0, 360.0])
def test_a_sector_is_a_wedge_of_the_given_width(degrees: float):
    before = cloud(5000)
    sizes = []
    for seed in range(5):
        after = augment.sector(before, generator(seed), degrees)
        angles = torch.atan2(after.points[:, 1], after.points[:, 0]).rad2deg().sort().values
        gaps = torch.cat([angles.diff(), angles[:1] + 360 - angles[-1:]])
        assert 360 - float(gaps.max()) <= degrees + 1e-3
        sizes.append(after.n_points)
    assert sum(sizes) / 5 == pytest.approx(5000 * degrees / 360, rel=0.1)


@pytest.mark.parametrize("n", [0, 1])
def test_tiny_clouds(n: int):
    after = Augmentation(drop=0.99, sector=1.0)(cloud(n), generator())
    assert after.n_points == n


def test_augmentation_is_repeatable_and_leaves_its_input():
    before = cloud(50)
    kept = before.points.clone()
    change = Augmentation(drop=0.1)
    first, again = change(before, generator()), change(before, generator())
    assert torch.equal(first.points, again.points)
    assert torch.equal(before.points, kept)
    assert not torch.equal(first.points[:5], change(before, generator(1)).points[:5])
    assert first.points.dtype == torch.float32


def test_everything_off_changes_nothing():
    before = cloud(10)
    off = Augmentation(rotate_z=False, scale=None, flip=False, jitter=0.0, drop=0.0)
    state = generator()
    assert off(before, state) is before
    assert state.random() == generator().random()


@pytest.mark.parametrize(
    "arguments",
    [
        {"scale": (1.1, 0.9)},
        {"scale": (0, 1)},
        {"jitter": -0.1},
        {"drop": 1.0},
        {"sector": 0},
        {"rotate_limit": 0},
    ],
)
def test_bad_numbers(arguments: dict[str, object]):
    (name,) = arguments
    with pytest.raises(ValueError, match=name):
        Augmentation(**arguments)


def test_scale_may_be_a_list_as_yaml_has_it():
    assert Augmentation(scale=[1, 2]).scale == (1.0, 2.0)

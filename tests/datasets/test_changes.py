"""Elastic, chromatic, remission and rigid changes of training clouds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import interpolate, ndimage

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.transforms import augment
from pcnn.datasets.transforms.augment import Augmentation, sample_generator
from pcnn.datasets.transforms.elastic import Elastic, distort
from pcnn.datasets.transforms.features import Chromatic, Remission, stretched
from tests.datasets.clouds import cloud


def generator(epoch: int = 0) -> np.random.Generator:
    return sample_generator(7, epoch, 3)


def coloured(n: int, seed: int = 0) -> Cloud:
    made = cloud(n, seed)
    colours = np.random.default_rng(seed).uniform(0.2, 0.7, (n, 3)).astype(np.float32)
    return replace(made, features=torch.from_numpy(colours))


def published_elastic(
    points: np.ndarray, noise: np.ndarray, grain: float, magnitude: float
) -> np.ndarray:
    """The published code, noise [X, Y, Z, 3] given."""
    for axis in (0, 1, 2) * 2:
        kernel = np.ones([3 if other == axis else 1 for other in range(4)]) / 3
        noise = ndimage.convolve(noise, kernel, mode="constant", cval=0)
    low = points.min(0)
    size = np.array(noise.shape[:3])
    axes = [
        np.linspace(start, stop, count)
        for start, stop, count in zip(low - grain, low + grain * (size - 2), size, strict=True)
    ]
    found = interpolate.RegularGridInterpolator(axes, noise)
    return points + found(points) * magnitude


@pytest.mark.parametrize("grain", [0.7, 3.0])
def test_elastic_is_the_published_one(grain: float) -> None:
    before = cloud(50)
    after = distort(before, generator(), grain, 0.4)
    size = ((before.points.amax(0) - before.points.amin(0)) / grain).floor().int() + 3
    noise = generator().standard_normal((3, *size.tolist()), dtype=np.float32)
    expected = published_elastic(
        before.points.double().numpy(), noise.astype(np.float64).transpose(1, 2, 3, 0), grain, 0.4
    )
    np.testing.assert_allclose(after.points.numpy(), expected, atol=1e-4)
    assert float((after.points - before.points).norm(dim=1).max()) > 1e-3


def test_elastic_serves_clouds_of_no_and_of_one_point_and_refuses_enormous_grids() -> None:
    change = Elastic(share=1.0)
    for n in (0, 1):
        after = change(cloud(n), generator())
        assert after.points.shape == (n, 3)
        assert bool(after.points.isfinite().all())
    with pytest.raises(ValueError, match=r"c\.bin.*coarser grain"):
        Elastic([[1e-4, 1.0]], share=1.0)(cloud(5), generator())
    assert Elastic(share=0.0)(cloud(5), generator()).points is not None


def test_colours_change_within_their_range_and_nothing_else_does() -> None:
    before = coloured(200)
    before = replace(before, features=torch.cat([before.features, torch.ones(200, 1)], dim=1))
    after = Chromatic(contrast=1.0, shift_share=1.0, noise_share=1.0)(before, generator())
    assert after.points is before.points
    assert torch.equal(after.features[:, 3:], before.features[:, 3:])
    colours = after.features[:, :3]
    assert 0 <= float(colours.min()) <= float(colours.max()) <= 1
    assert not torch.allclose(colours, before.features[:, :3], atol=0.02)
    off = Chromatic(contrast=0.0, shift_share=0.0, noise_share=0.0)(before, generator())
    assert torch.equal(off.features, before.features)


def test_a_shift_moves_all_colours_alike() -> None:
    before = coloured(100)
    after = Chromatic(contrast=0.0, noise_share=0.0, shift_share=1.0)(before, generator())
    moves = after.features - before.features
    torch.testing.assert_close(moves, moves[:1].expand(100, 3), atol=1e-6, rtol=0)
    assert 0 < float(moves.abs().max()) <= 0.05


def test_contrast_is_stretched_to_the_whole_range() -> None:
    colours = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.5, 0.9]])
    torch.testing.assert_close(stretched(colours), torch.tensor([[0, 0.5, 0], [1.0, 0.5, 1.0]]))


def test_remission_is_forgotten_or_rescaled() -> None:
    before = cloud(500)
    gone = Remission(forget=1.0)(before, generator())
    assert float(gone.features.abs().max()) == 0
    scaled = Remission(forget=0.0, gain=[0.5, 0.5], gamma=[1, 1], noise=0.0)(before, generator())
    torch.testing.assert_close(scaled.features, before.features * 0.5)
    forgotten = sum(
        float(Remission(forget=0.3)(cloud(20), generator(e)).features.sum()) == 0
        for e in range(300)
    )
    assert 60 <= forgotten <= 120
    noisy = Remission(forget=0.0, noise=0.5)(before, generator()).features
    assert 0 <= float(noisy.min()) <= float(noisy.max()) <= 1


def test_clouds_without_what_a_change_is_about_are_named() -> None:
    bare = replace(cloud(5), features=torch.zeros(5, 0))
    with pytest.raises(ValueError, match=r"c\.bin.*no remission"):
        Remission()(bare, generator())
    with pytest.raises(ValueError, match=r"c\.bin.*no colour"):
        Chromatic()(bare, generator())


@pytest.mark.parametrize("n", [0, 1])
def test_tiny_clouds_keep_their_size(n: int) -> None:
    change = Augmentation(
        tilt=3.0,
        shift=(1.0, 1.0, 0.2),
        elastic=Elastic(share=1.0),
        chromatic=Chromatic(contrast=1.0),
        remission=Remission(),
    )
    assert change(coloured(n), generator()).n_points == n


def test_a_tilt_keeps_distances_and_a_shift_is_one_move() -> None:
    before = cloud(100)
    tilted = augment.tilt(before, generator(), 3.0)
    torch.testing.assert_close(tilted.points.norm(dim=1), before.points.norm(dim=1))
    assert 0 < float((tilted.points - before.points)[:, 2].abs().max()) < 3
    moves = augment.shift(before, generator(), (1.0, 0.0, 0.2)).points - before.points
    torch.testing.assert_close(moves, moves[:1].expand(100, 3), atol=1e-5, rtol=0)
    assert float(moves[0, 1]) == 0
    assert 0 < abs(float(moves[0, 2])) <= 0.2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Elastic([[0.2, 0.0]]),
        lambda: Elastic(share=1.5),
        lambda: Chromatic(contrast=-1),
        lambda: Chromatic(noise=-1.0),
        lambda: Remission(gain=[2.0, 1.0]),
        lambda: Remission(forget=2.0),
        lambda: Remission(noise=-0.1),
        lambda: Augmentation(tilt=-1.0),
        lambda: Augmentation(shift=(1.0, -1.0, 0.0)),
    ],
)
def test_bad_numbers_are_refused(make: Any) -> None:
    with pytest.raises(ValueError):
        make()

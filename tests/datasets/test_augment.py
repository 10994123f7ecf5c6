"""Random changes of training clouds, and mixes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import interpolate, ndimage

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.semantic_kitti import SemanticKITTI
from pcnn.datasets.transforms.augment import Augmentation, sample_generator
from pcnn.datasets.transforms.crops import Pieces
from pcnn.datasets.transforms.features import Chromatic, Elastic, Remission, distort
from pcnn.datasets.transforms.mixes import LaserMix, OneOf, PolarMix
from pcnn.errors import ConfigError
from tests.datasets.clouds import cloud, write_scan


def generator(epoch: int = 0) -> np.random.Generator:
    return sample_generator(7, epoch, 3)


def only(**changes: Any) -> Augmentation:
    """These changes alone."""
    return Augmentation(
        **({"rotate_z": False, "scale": None, "flip": False, "jitter": 0.0} | changes)
    )


def coloured(n: int, seed: int = 0) -> Cloud:
    colours = np.random.default_rng(seed).uniform(0.2, 0.7, (n, 3)).astype(np.float32)
    return replace(cloud(n, seed), features=torch.from_numpy(colours))


@pytest.mark.parametrize("n", [0, 1])
def test_tiny_clouds_keep_their_size(n: int):
    change = Augmentation(
        drop=0.99,
        sector=1.0,
        tilt=3.0,
        shift=(1.0, 1.0, 0.2),
        elastic=Elastic(share=1.0),
        chromatic=Chromatic(contrast=1.0),
        pieces=Pieces(share=1.0, open=1.0, thin=0.99),
        remission=Remission(),
    )
    after = change(coloured(n), generator())
    assert after.points.shape == (n, 3)
    assert bool(after.points.isfinite().all())


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Augmentation, {"scale": (1.1, 0.9)}),
        (Augmentation, {"drop": 1.0}),
        (Augmentation, {"shift": (1.0, -1.0, 0.0)}),
        (Augmentation, {"jitter": (-0.01, 0.01)}),
        (Elastic, {"strengths": [[0.2, 0.0]]}),
        (Remission, {"gamma": [1.5, 1.0]}),
        (Pieces, {"thin": 1.0}),
        (Remission, {"noise": -0.1}),
        (LaserMix, {"pitch": [3, -25]}),
        (PolarMix, {"swap": 2.0}),
    ],
)
def test_bad_numbers_are_named(kind: Any, arguments: dict[str, Any]):
    (name,) = arguments
    with pytest.raises(ValueError, match=name):
        kind(**arguments)
    for shares in ([0.5, 0.5], [1.5]):
        with pytest.raises(ValueError, match="shares"):
            OneOf([LaserMix()], shares)


@pytest.mark.parametrize(
    ("key", "change"), [("chromatic", Chromatic()), ("remission", Remission())]
)
def test_a_change_that_a_cloud_has_nothing_for_is_named(key: str, change: Any):
    bare = replace(cloud(9), features=torch.empty(9, 0))
    with pytest.raises(ConfigError) as refused:
        change(bare, generator())
    assert refused.value.key == f"augment.{key}"


def published_elastic(
    points: np.ndarray, noise: np.ndarray, grain: float, magnitude: float
) -> np.ndarray:
    """The published code, noise [X, Y, Z, 3] given."""
    for axis in (0, 1, 2) * 2:
        kernel = np.ones([3 if other == axis else 1 for other in range(4)]) / 3
        noise = ndimage.convolve(noise, kernel, mode="constant", cval=0)
    low, size = points.min(0), np.array(noise.shape[:3])
    axes = [
        np.linspace(start, stop, count)
        for start, stop, count in zip(low - grain, low + grain * (size - 2), size, strict=True)
    ]
    return points + interpolate.RegularGridInterpolator(axes, noise)(points) * magnitude


@pytest.mark.parametrize("grain", [0.7, 3.0])
def test_elastic_is_the_published_one(grain: float):
    before = cloud(50)
    after = distort(before, generator(), grain, 0.4)
    size = ((before.points.amax(0) - before.points.amin(0)) / grain).floor().int() + 3
    noise = generator().standard_normal((3, *size.tolist()), dtype=np.float32)
    expected = published_elastic(
        before.points.double().numpy(), noise.astype(np.float64).transpose(1, 2, 3, 0), grain, 0.4
    )
    np.testing.assert_allclose(after.points.numpy(), expected, atol=1e-4)
    assert float((after.points - before.points).norm(dim=1).max()) > 1e-3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for frame, n in enumerate((300, 200, 100)):
        write_scan(tmp_path, 0, frame, n)
    return tmp_path


def mixing(root: Path, **options: Any) -> CloudDataset:
    scans = SemanticKITTI(root, [0])
    return CloudDataset(scans, voxel_size=1.0, augment=Augmentation(**options), seed=3)


@pytest.mark.parametrize("options", [{"mix": LaserMix()}, {"mix": PolarMix()}, {"mix3d": 1.0}])
def test_mixed_samples_are_functions_of_their_key(root: Path, options: dict[str, Any]):
    first, again = mixing(root, **options), mixing(root, **options)
    keys = [(0, 0), (0, 1), (1, 0), (1, 2)]
    ahead = {key: first[key].cloud for key in keys}
    for key in reversed(keys):  # another order, another object, as after a restart
        assert torch.equal(again[key].cloud.points, ahead[key].points)
        assert torch.equal(again[key].labels, first[key].labels)
    one, other = ahead[0, 0].points, ahead[1, 0].points
    assert len(one) != len(other) or not torch.equal(one, other)


def test_mix3d_adds_another_cloud_as_it_is_in_its_own_turn(root: Path):
    plain, both = mixing(root), mixing(root, mix3d=1.0)[2, 0].cloud
    own = plain[2, 0].cloud
    assert torch.equal(both.points[:300], own.points)
    (other,) = (i for i in (1, 2) if plain[2, i].cloud.n_points == both.n_points - 300)
    assert torch.equal(both.points[300:], plain[2, other].cloud.points)

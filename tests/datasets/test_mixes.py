"""Mixes of scans: what comes from which, and that a sample stays a function of its key."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcnn.datasets import OnPoints
from pcnn.datasets.cloud import Cloud, joined_cloud
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.semantic_kitti import SemanticKITTI
from pcnn.datasets.transforms.augment import Augmentation, sample_generator
from pcnn.datasets.transforms.mixes import LaserMix, OneOf, PolarMix
from pcnn.geometry import PointSet
from tests.datasets.clouds import cloud, write_scan


def generator(epoch: int = 0) -> np.random.Generator:
    return sample_generator(7, epoch, 3)


def marked(n: int, seed: int, mark: float) -> Cloud:
    """A cloud whose feature says where it comes from."""
    made = cloud(n, seed)
    return replace(made, features=torch.full((n, 1), mark))


def test_two_clouds_become_one() -> None:
    first, second = cloud(5, 1), replace(cloud(3, 2), labels=None)
    both = joined_cloud(first, second)
    assert torch.equal(both.points, torch.cat([first.points, second.points]))
    assert first.labels is not None
    assert both.labels is not None
    assert both.labels.tolist() == [*first.labels.tolist(), IGNORE, IGNORE, IGNORE]
    assert both.point_index is None
    assert both.name == first.name
    with pytest.raises(ValueError, match="cannot be mixed"):
        joined_cloud(first, replace(second, features=torch.zeros(3, 2)))


@pytest.mark.parametrize("areas", [1, 3, 6])
def test_lasermix_takes_bands_in_turn(areas: int) -> None:
    own, other = marked(3000, 1, 0.0), marked(3000, 2, 1.0)
    mixed = LaserMix(areas=[areas])(own, other, generator())
    edges = np.linspace(3.0, -25.0, areas + 1)
    for source, given in ((0.0, own), (1.0, other)):
        x, y, z = given.points.double().unbind(1)
        pitch = torch.rad2deg(torch.atan2(z, torch.hypot(x, y)))
        band = torch.from_numpy(np.digitize(pitch.numpy(), edges[1:-1])).clamp(0, areas - 1)
        expected = given.points[band % 2 == int(source)]
        assert torch.equal(mixed.points[mixed.features[:, 0] == source], expected)
    assert mixed.labels is not None
    assert len(mixed.labels) == mixed.n_points


def test_lasermix_chooses_every_number_of_areas() -> None:
    own, other = marked(2000, 1, 0.0), marked(2000, 2, 1.0)
    sizes = {LaserMix()(own, other, generator(e)).n_points for e in range(30)}
    assert len(sizes) == 4


def test_polarmix_swaps_half_of_the_surroundings() -> None:
    own, other = marked(4000, 1, 0.0), marked(4000, 2, 1.0)
    mixed = PolarMix(swap=1.0, paste=0.0)(own, other, generator())
    assert mixed.n_points == pytest.approx(4000, rel=0.05)
    angle = torch.atan2(mixed.points[:, 1], mixed.points[:, 0])
    theirs = angle[mixed.features[:, 0] == 1.0]
    ours = angle[mixed.features[:, 0] == 0.0]
    # the partner's points fill one half plane, and ours the other
    middle = torch.atan2(theirs.sin().mean(), theirs.cos().mean())
    assert float((theirs - middle).cos().min()) > -0.03
    assert float((ours - middle).cos().max()) < 0.03


def test_polarmix_pastes_instances_turned_twice() -> None:
    own, other = marked(500, 1, 0.0), marked(500, 2, 1.0)
    classes = (0, 5)
    mixed = PolarMix(classes, swap=0.0, paste=1.0)(own, other, generator())
    assert other.labels is not None
    things = other.points[torch.isin(other.labels, torch.tensor(classes))]
    assert mixed.n_points == 500 + 3 * len(things)
    assert torch.equal(mixed.points[:500], own.points)
    copies = mixed.points[500:].view(3, len(things), 3)
    assert torch.equal(copies[0], things)
    for number, copy in enumerate(copies[1:]):
        torch.testing.assert_close(copy[:, 2], things[:, 2])
        turn = torch.atan2(copy[0, 1], copy[0, 0]) - torch.atan2(things[0, 1], things[0, 0])
        third = 2 * math.pi / 3
        assert number * third <= float(turn) % (2 * math.pi) <= (number + 1) * third
    assert mixed.labels is not None
    assert set(mixed.labels[500:].tolist()) <= set(classes)


def test_one_of_several_or_none() -> None:
    own, other = marked(100, 1, 0.0), marked(100, 2, 1.0)
    choice = OneOf([LaserMix(), PolarMix(paste=0.0, swap=1.0)], [0.4, 0.4])
    kept = sum(choice(own, other, generator(e)) is own for e in range(200))
    assert 20 <= kept <= 60


@pytest.mark.parametrize(
    "make",
    [
        lambda: LaserMix(areas=[]),
        lambda: LaserMix(pitch=[3, -25]),
        lambda: PolarMix(swap=2.0),
        lambda: OneOf([LaserMix()], [0.5, 0.5]),
        lambda: OneOf([LaserMix()], [1.5]),
        lambda: Augmentation(mix3d=-0.1),
    ],
)
def test_impossible_mixes_are_refused(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for frame, n in enumerate((300, 200, 100)):
        write_scan(tmp_path, 0, frame, n)
    return tmp_path


@pytest.mark.parametrize("options", [{"mix": LaserMix()}, {"mix": PolarMix()}, {"mix3d": 1.0}])
def test_mixed_samples_are_functions_of_their_key(root: Path, options: dict[str, Any]) -> None:
    def data() -> CloudDataset:
        change = Augmentation(**options)
        return CloudDataset(SemanticKITTI(root, [0]), voxel_size=1.0, augment=change, seed=3)

    first, again = data(), data()
    keys = [(0, 0), (0, 1), (1, 0), (1, 2)]
    ahead = {key: first.cloud(key) for key in keys}
    for key in reversed(keys):  # another order, another object, as after a restart
        assert torch.equal(again.cloud(key).points, ahead[key].points)
        assert torch.equal(again[key].labels, first[key].labels)
    assert ahead[0, 0].n_points != ahead[1, 0].n_points or not torch.equal(
        ahead[0, 0].points, ahead[1, 0].points
    )


def test_mix3d_adds_another_cloud_as_it_is_in_its_own_turn(root: Path) -> None:
    plain = CloudDataset(SemanticKITTI(root, [0]), voxel_size=1.0, augment=Augmentation(), seed=3)
    mixing = CloudDataset(
        SemanticKITTI(root, [0]), voxel_size=1.0, augment=Augmentation(mix3d=1.0), seed=3
    )
    both, own = mixing.cloud((2, 0)), plain.cloud((2, 0))
    assert torch.equal(both.points[:300], own.points)
    (other,) = (i for i in (1, 2) if plain.cloud((2, i)).n_points == both.n_points - 300)
    assert torch.equal(both.points[300:], plain.cloud((2, other)).points)
    never = CloudDataset(
        SemanticKITTI(root, [0]), voxel_size=1.0, augment=Augmentation(mix3d=1e-9), seed=3
    )
    assert torch.equal(never.cloud((2, 0)).points, own.points)


def test_a_set_of_one_scan_is_mixed_with_itself(tmp_path: Path) -> None:
    write_scan(tmp_path, 0, 0, 50)
    data = CloudDataset(
        SemanticKITTI(tmp_path, [0]),
        voxel_size=1.0,
        augment=Augmentation(mix=LaserMix(), mix3d=1.0),
    )
    assert data.cloud(0).n_points == 100


def test_mixed_clouds_lie_on_native_points_too(root: Path) -> None:
    sample = CloudDataset(
        SemanticKITTI(root, [0]),
        voxel_size=1.0,
        augment=Augmentation(mix3d=1.0),
        geometry=OnPoints(),
    )[0, 2]
    assert isinstance(sample.geometry, PointSet)
    assert sample.geometry.rows == len(sample.points) > 100


def test_a_mix_needs_a_set() -> None:
    with pytest.raises(ValueError, match=r"c\.bin.*needs a set"):
        Augmentation(mix=LaserMix())(cloud(5), generator())

"""Shapes that fit in other poses, sizes that differ and mirror images are told, rooms are not."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pcnn.datasets.registration import ThreeDMatchSets
from pcnn.registration.cloud_measures import voxel_means
from pcnn.registration.register import AmbiguousError, NoOverlapError, NotRigidError
from pcnn.registration.rivals import Rivals, rivals_of_matches, scale_of, with_other_poses
from pcnn.registration.settings import RansacSettings
from pcnn.registration.transforms import inverse, transform_points
from tests.registration.clouds import Known, place, register_points
from tests.registration.poses import random_pose

VOXEL = 0.05


def sphere(generator: torch.Generator) -> Tensor:
    points = torch.randn(15_000, 3, generator=generator)
    return 1.2 * points / points.norm(dim=1, keepdim=True)


def cylinder(generator: torch.Generator) -> Tensor:
    turn, z = torch.rand(2, 12_000, generator=generator)
    around = torch.stack([torch.cos(2 * math.pi * turn), torch.sin(2 * math.pi * turn), 3 * z], 1)
    lid = around[:4000].clone()
    lid[:, :2] *= torch.rand(4000, 1, generator=generator).sqrt()
    lid[:, 2] = 3 * (lid[:, 2] > 1.5)
    return torch.cat([around, lid])


def box(generator: torch.Generator, x: float = 2.0, y: float = 2.0, z: float = 2.0) -> Tensor:
    size = torch.tensor([x, y, z])
    axis = torch.multinomial(size.prod() / size, 16_000, replacement=True, generator=generator)
    points = torch.rand(16_000, 3, generator=generator)
    rows = torch.arange(16_000)
    points[rows, axis] = points[rows, axis].round()
    return points * size


def corridor(generator: torch.Generator) -> Tensor:
    points = box(generator, 6.0, 1.6, 2.2)
    return points[(points[:, 0] > 0) & (points[:, 0] < 6)]


def plane(generator: torch.Generator) -> Tensor:
    return torch.rand(8000, 3, generator=generator) * torch.tensor([3.0, 4.0, 0.0])


def drawn_twice(shape: Callable[[torch.Generator], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Two samples of a shape with 5 mm of noise, and the pose of the second one in the first."""
    generator = torch.Generator().manual_seed(0)
    truth = random_pose(4)
    source, target = (
        voxel_means(points + 0.005 * torch.randn(points.shape, generator=generator), VOXEL)
        for points in (shape(generator), shape(generator))
    )
    return transform_points(inverse(truth), source.double()).float(), target, truth


def other_poses(source: Tensor, target: Tensor, truth: Tensor) -> Rivals:
    return with_other_poses(Rivals(), source, target, truth, VOXEL)


@pytest.mark.parametrize(
    ("shape", "free"), [(sphere, 3), (cylinder, 1), (corridor, 1), (plane, 3), (box, 0)]
)
def test_shapes_that_slide_or_turn_fit_in_other_poses(
    shape: Callable[[torch.Generator], Tensor], free: int
) -> None:
    source, target, truth = drawn_twice(shape)
    found = other_poses(source, target, truth)
    assert found.ambiguity
    assert len(found.poses) == 2 * free or (free == 0 and found.poses)
    for pose in found.poses:
        placed = transform_points(pose, source.double())
        apart = (placed - transform_points(truth, source.double())).norm(dim=1).mean()
        assert float(apart) > (2 * VOXEL if free else 0.5)
        if shape in (sphere, box):  # all of it lies on the target again
            assert float(torch.cdist(placed, target.double()).amin(1).mean()) < VOXEL


def test_one_thing_in_an_empty_room_tells_its_pose() -> None:
    def furnished(generator: torch.Generator) -> Tensor:
        thing = box(generator, 0.8, 0.5, 0.7)[::6] + torch.tensor([0.3, 0.2, 0.1])
        return torch.cat([box(generator), thing])

    assert not other_poses(*drawn_twice(furnished)).ambiguity


def pair(copy: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Known]:
    """A place, and a copy of it in another pose; a third of the descriptors are wrong."""
    world = voxel_means(place(), VOXEL)[::3]
    source = transform_points(inverse(random_pose(2)), world.double()).float()
    features = world.clone()
    wrong = torch.rand(len(world), generator=torch.Generator().manual_seed(1)) < 0.3
    features[wrong] = features[wrong].roll(1, 0)
    target = copy(world)
    return source, target, Known((source, features), (target, world))


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ((1.5, 1.5, 1.5), "times as large"),
        ((0.9, 0.9, 0.9), "times as large"),
        ((-1.0, 1.0, 1.0), "mirror image"),
        ((1.0, 1.0, 1.0), None),
    ],
)
def test_copies_are_refused_unless_they_are_rigid(
    factors: tuple[float, float, float], said: str | None
) -> None:
    source, target, descriptor = pair(lambda world: world * torch.tensor(factors))
    if said is None:
        found = register_points(source, target, descriptor)
        assert (found.scale, found.ambiguity) == (pytest.approx(1, abs=0.03), "")
        return
    with pytest.raises(NotRigidError, match=said) as caught:
        register_points(source, target, descriptor, min_inliers=10)
    if factors[0] > 0:
        assert caught.value.rivals.scale == pytest.approx(factors[0], abs=0.03)


def test_ambiguous_answers_are_refused_or_allowed() -> None:
    source, target, _ = drawn_twice(box)
    target = transform_points(random_pose(4), source.double()).float()
    descriptor = Known((source, target.clone()), (target, target.clone()))
    with pytest.raises(AmbiguousError, match="as well") as caught:
        register_points(source, target, descriptor)
    assert caught.value.rivals.poses
    assert isinstance(caught.value, NoOverlapError)
    found = register_points(source, target, descriptor, allow_ambiguous=True)
    assert found.ambiguity


@pytest.mark.parametrize("scale", [0.6, 0.96, 1.0])
@pytest.mark.parametrize("right", [0.15, 1.0])
def test_the_scale_is_that_of_right_matches(scale: float, right: float) -> None:
    generator = torch.Generator().manual_seed(0)
    source, target = 3 * torch.rand(2, 500, 3, generator=generator)
    moved = scale * transform_points(random_pose(5), source.double()).float()
    good = torch.arange(500) < right * 500
    target = torch.where(good[:, None], moved, target)
    assert scale_of(source, target) == pytest.approx(scale, rel=0.015)
    found = rivals_of_matches(source, target, RansacSettings(0.05), 10)
    assert found.scale == pytest.approx(scale, rel=0.015)
    assert found.scaled >= right * 500 * (abs(scale - 1) > 0.03)
    assert bool(found.not_rigid(0)) == (scale != 1)


@pytest.mark.data
def test_true_poses_of_a_real_scene_are_not_ambiguous(data_root: Path) -> None:
    scene = "sun3d-hotel_umd-maryland_hotel3"
    data = ThreeDMatchSets(root=str(data_root / "threedmatch"), scenes=[scene]).find("test")
    for pair in data.pairs[::9]:
        source, target = (
            voxel_means(data.cloud(scene, number).float(), VOXEL)
            for number in (pair.source, pair.target)
        )
        assert not other_poses(source, target, pair.transform).ambiguity, pair

"""Descriptors of turned copies hold under any rotation of either cloud."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pcnn.datasets import OnPoints, OnVoxels, Placement
from pcnn.geometry import PointSet
from pcnn.registration.descriptor import Described, TurnedAtRandom, random_rotation
from pcnn.registration.dominant_frame import dominant_frame
from pcnn.registration.estimate import estimate_all
from pcnn.registration.network_descriptor import NetworkDescriptor
from pcnn.registration.register import default_settings
from pcnn.registration.rotation_group import ORDERS, rotation_group
from pcnn.registration.transforms import rotation_angle
from pcnn.registration.turned_copies import TRIED, in_one_order, likely_turns, pooled
from pcnn.tensor import SparseTensor


@pytest.mark.parametrize(("order", "reach"), [(1, 180.0), (24, 62.8), (60, 44.5)])
def test_groups_are_closed_and_near_every_rotation(order: int, reach: float) -> None:
    rotations, products = rotation_group(order)
    assert rotations.shape == (order, 3, 3)
    assert torch.equal(rotations[0], torch.eye(3, dtype=torch.float64))
    identity = torch.eye(3, dtype=torch.float64).expand(order, 3, 3)
    torch.testing.assert_close(rotations @ rotations.transpose(1, 2), identity)
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones(order, dtype=torch.float64))
    torch.testing.assert_close(rotations[products], rotations[:, None] @ rotations[None])
    assert all(len(set(row)) == order for row in products.tolist())
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        traces = (
            (rotations.transpose(1, 2) @ random_rotation(generator)).diagonal(dim1=1, dim2=2).sum(1)
        )
        nearest = math.degrees(math.acos(min(1.0, (float(traces.max()) - 1) / 2)))
        assert nearest <= reach + 0.1
    with pytest.raises(ValueError, match="1, 24, 60"):
        rotation_group(12)
    assert order in ORDERS


def test_clouds_are_turned_and_described_in_their_own_frame() -> None:
    seen = []

    def describe(points: Tensor) -> Described:
        seen.append(points)
        return Described(points[::2], points[::2])

    describe.name, describe.voxel_size = "seen", 0.1  # type: ignore[attr-defined]
    points = 5 + torch.rand(40, 3)
    turned = TurnedAtRandom(describe, 3)  # type: ignore[arg-type]
    found, again = turned(points), turned(points)
    torch.testing.assert_close(found.points, points[::2])
    assert torch.equal(again.points, found.points)
    torch.testing.assert_close(torch.pdist(seen[0]), torch.pdist(points), atol=1e-5, rtol=0)
    assert float((seen[0] - points + points.mean(0)).abs().max()) > 0.1
    other = TurnedAtRandom(describe, 4)(points)  # type: ignore[arg-type]
    assert not torch.equal(other.features, found.features)
    assert (turned.name, turned.voxel_size) == ("seen, clouds turned at random", 0.1)
    generator = torch.Generator().manual_seed(0)
    angles = [float(rotation_angle(random_rotation(generator))) for _ in range(300)]
    assert np.mean(angles) == pytest.approx(math.degrees(math.pi / 2 + 2 / math.pi), abs=6)


def corner() -> Tensor:
    """[1500, 3] points of two walls and a floor of different sizes, with a box in between."""
    points = torch.rand(1500, 3, generator=torch.Generator().manual_seed(3))
    points[torch.arange(1200), torch.arange(1200) % 3] = 0
    points[1200:, 2] = 1
    points[1200:] = 0.2 + 0.3 * points[1200:]
    return points * torch.tensor([1.0, 1.3, 1.6])


class Directional(nn.Module):
    """Describes a place by waves over its coordinates: other ones in every turned copy."""

    def forward(self, x: SparseTensor) -> SparseTensor:
        at = x.geometry
        places = at.points if isinstance(at, PointSet) else 0.05 * at.coords[:, 1:]
        waves = torch.linspace(0.2, 6, 24).view(3, 8)
        values = torch.cat([torch.sin(places @ waves), torch.cos(places @ waves.roll(1, 0))], 1)
        return SparseTensor(values, x.geometry)


def test_the_frame_of_a_cloud_turns_with_it() -> None:
    points = corner()
    rotations = rotation_group(24).rotations
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        rotation = random_rotation(generator).double()
        frame = dominant_frame((points.double() @ rotation.T).float(), 0.05)
        torch.testing.assert_close(frame @ frame.T, torch.eye(3, dtype=torch.float64))
        # the surfaces lie along the axes of the cloud: up to the 24, its frame undoes the rotation
        left = float((rotations - frame @ rotation).flatten(1).norm(dim=1).min())
        assert left < 0.05
    for few in (points[:1], torch.zeros(5, 3)):
        assert float(torch.linalg.det(dominant_frame(few, 0.05))) == pytest.approx(1)


@pytest.mark.parametrize("placement", [OnPoints(thin=0.02), OnVoxels()])
def test_clouds_that_lie_any_way_are_registered(placement: Placement) -> None:
    points = corner()
    one, many = (
        NetworkDescriptor(Directional(), 0.05, "waves", placement, copies=copies)
        for copies in (1, 24)
    )
    rotations = [rotation_group(24).rotations[7]]
    rotations += [random_rotation(torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    for rotation in rotations:
        placed = (points.double() @ rotation.double().T + 1).float()
        source, target = many(points), many(placed)
        assert source.turned is not None
        assert source.turned.shape == (len(source.points), 24, 16)
        (found,) = estimate_all([source], [target], default_settings(0.05), 500)
        assert found.solution.transform is not None
        assert float((found.solution.transform[:3, :3] - rotation).abs().max()) < 0.1
        (found,) = estimate_all([one(points)], [one(placed)], default_settings(0.05), 500)
        assert int(found.solution.inliers.sum()) < 60  # without copies


def test_orders_with_fewer_votes_are_tried() -> None:
    generator = torch.Generator().manual_seed(2)
    points = 2 * torch.rand(300, 3, generator=generator)
    turned = torch.randn(300, 24, 8, generator=generator)
    products = rotation_group(24).products
    # two thirds of the places look as if the cloud was turned by 5, but lie elsewhere
    order = torch.where(torch.arange(300) % 3 > 0, 5, 9)
    placed = points.clone()
    placed[order == 5] = 2 * torch.rand(200, 3, generator=generator)
    moved = torch.stack([turned[row, products[:, turn]] for row, turn in enumerate(order)])
    source, target = (
        Described(at, pooled(own), own.half()) for at, own in ((points, turned), (placed, moved))
    )
    assert likely_turns(source, target)[:2] == [5, 9]
    (found,) = estimate_all([source], [target], default_settings(0.05))
    assert found.solution.transform is not None
    torch.testing.assert_close(
        found.solution.transform, torch.eye(4, dtype=torch.float64), atol=1e-3, rtol=0
    )


def test_pooled_descriptors_do_not_depend_on_the_order_of_copies() -> None:
    turned = torch.randn(5, 24, 4)
    torch.testing.assert_close(pooled(turned[:, torch.randperm(24)]), pooled(turned))
    assert pooled(turned).shape == (5, 8)
    none = Described(torch.zeros(0, 3), torch.zeros(0, 8), torch.zeros(0, 24, 4).half())
    assert likely_turns(none, none) == list(range(TRIED))
    assert [tuple(one.shape) for one in in_one_order(none, none, 3)] == [(0, 96), (0, 96)]


def test_clouds_of_different_copies_are_refused() -> None:
    points = torch.zeros(3, 3)
    some = Described(points, torch.ones(3, 8), torch.ones(3, 24, 4).half())
    with pytest.raises(ValueError, match="with turned copies"):
        likely_turns(some, Described(points, torch.ones(3, 8)))
    with pytest.raises(ValueError, match="as many copies"):
        likely_turns(some, Described(points, torch.ones(3, 8), torch.ones(3, 60, 4).half()))

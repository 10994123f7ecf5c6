"""Cells from the clouds: kept where training had such clouds, in proportion where asked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.experiment.descriptors import chosen, fitted, made
from pcnn.experiment.register_options import RegisterOptions
from pcnn.metrics.registration import rotation_error
from pcnn.registration.cell_size import (
    KNOWN,
    Rescaled,
    fitting_cell,
)
from pcnn.registration.cloud_measures import extent, measured, spacing
from pcnn.registration.descriptor import Described
from pcnn.registration.fpfh import FPFH
from pcnn.registration.network_descriptor import NetworkDescriptor
from tests.registration.clouds import two_views

ROOMS = KNOWN["threedmatch"]


def room(step: float = 0.025, size: float = 3.0) -> Tensor:
    """Floor and two walls in even points, as a fused fragment has them."""
    line = torch.arange(0.0, size, step)
    u, v = (one.flatten() for one in torch.meshgrid(line, line, indexing="ij"))
    zero = torch.zeros_like(u)
    faces = [(u, v, zero), (u, zero, v), (zero, u, v)]
    return torch.cat([torch.stack(face, 1) for face in faces])


def thinned(points: Tensor, every: int) -> Tensor:
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(1))
    return points[order[: len(points) // every]]


def test_usual_rooms_and_streets_keep_the_trained_cell() -> None:
    usual = room()
    assert spacing(usual) == pytest.approx(0.025 * 2**0.5, rel=1e-3)  # eight around each point
    assert fitting_cell(measured([usual, thinned(usual, 2)]), 0.05, ROOMS).cell == 0.05
    assert fitting_cell(measured([room(0.2, 60.0)]), 0.3, KNOWN["kitti"]).cell == 0.3
    for places in (5, 0):
        assert fitting_cell(measured([torch.zeros(places, 3)]), 0.05, ROOMS).cell == 0.05


def test_thinner_clouds_take_larger_cells_up_to_a_part_of_their_width() -> None:
    cells = [
        fitting_cell(measured([thinned(room(), every)]), 0.05, ROOMS).cell
        for every in 4 ** torch.arange(6)
    ]
    assert cells[0] == 0.05
    assert cells == sorted(cells)
    assert cells[-1] > cells[-2] > cells[-3] > 0.05
    few = thinned(room(), 4000)
    found = fitting_cell(measured([room(), few]), 0.05, ROOMS)  # the sparser of two decides
    width = max(extent(room()), extent(few))
    assert found.cell == pytest.approx(width / ROOMS.least)
    assert "m apart" in found.reason


def test_wide_and_small_clouds_are_as_wide_as_training_clouds_in_cells() -> None:
    for factor in (0.01, 0.2, 100.0):
        points = room() * factor
        found = fitting_cell(measured([points]), 0.05, ROOMS)
        assert extent(points) / found.cell == pytest.approx(ROOMS.usual)
        assert "m wide" in found.reason


class Seen:
    """Answers with the points that it was given."""

    name, voxel_size = "seen", 0.05

    def __call__(self, points: Tensor) -> Described:
        return Described(points, points)


def test_a_rescaled_descriptor_sees_clouds_in_its_own_cells() -> None:
    cloud = room()
    found = Rescaled(Seen(), 2.0)(cloud)
    assert torch.equal(found.points, cloud)
    assert torch.equal(found.features, cloud / 2)
    assert Rescaled(Seen(), 2.0).voxel_size == 0.1
    assert Rescaled(Seen(), 2.0).name == "seen, cells of 0.1 m"


def test_descriptors_are_the_same_objects_on_usual_clouds_and_told_on_others() -> None:
    options, clouds = RegisterOptions(device="cpu"), [room(), thinned(room(), 2)]
    choice = chosen(None, measured(clouds), None)
    network = made(options, choice)
    assert isinstance(network, NetworkDescriptor)
    assert network.benchmark == "threedmatch"
    assert fitted(network, choice, measured(clouds)) == (network, choice)
    small = [cloud / 10 for cloud in clouds]
    other, told = fitted(network, choice, measured(small))
    assert other.voxel_size == pytest.approx(max(map(extent, small)) / ROOMS.usual)
    assert "; cells of 0.0055 m in place of 0.05 m: the clouds are 0.277 m wide" in told.reason
    assert "cells of 0.0055" in other.name
    # twice as large, the same bits
    a, b = Rescaled(network, 2.0)(clouds[0] * 2), network(clouds[0])
    assert torch.equal(a.features, b.features)
    assert torch.equal(a.points, 2 * b.points)
    assert fitted(network, choice, measured(small), "trained") == (network, choice)
    with pytest.raises(ValueError):
        pcnn.register(*clouds, cell="any")


def test_fpfh_in_other_cells() -> None:
    small = [room() / 10]
    choice = chosen("fpfh", measured(small), None)
    found, told = fitted(FPFH(0.05), choice, measured(small))
    assert found.voxel_size == told.voxel_size == pytest.approx(extent(small[0]) / ROOMS.usual)
    given = chosen("fpfh", measured(small), 0.02)
    coarse = FPFH(0.02)
    assert fitted(coarse, given, measured(small)) == (coarse, given)


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_the_pose_of_clouds_in_another_unit_is_the_same_in_that_unit(factor: float) -> None:
    pytest.importorskip("open3d")
    source, target, truth = two_views(3)
    found = pcnn.register(
        source * factor, target * factor, "fpfh", cell="clouds", sensor_at_origin=False
    )
    assert float(rotation_error(found.transform, truth)) < 3.0
    apart = found.transform[:3, 3] / factor - truth[:3, 3]
    assert float(apart.norm()) < 0.15
    assert "in place of 0.05 m: the clouds are" in found.reason

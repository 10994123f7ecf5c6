"""Cells from the clouds: kept where training had such clouds, in proportion where asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.experiment.descriptors import chosen, descriptor_of
from pcnn.experiment.options import RegisterOptions
from pcnn.metrics.registration import rotation_error
from pcnn.registration.cloud_measures import KNOWN, extent, fitting_cell, measured, spacing
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
    assert fitting_cell(measured([usual, thinned(usual, 2)]), 0.05, ROOMS)[0] == 0.05
    assert fitting_cell(measured([room(0.2, 60.0)]), 0.3, KNOWN["kitti"])[0] == 0.3
    for places in (5, 0):
        assert fitting_cell(measured([torch.zeros(places, 3)]), 0.05, ROOMS)[0] == 0.05


def test_thinner_clouds_take_larger_cells_up_to_a_part_of_their_width() -> None:
    cells = [
        fitting_cell(measured([thinned(room(), every)]), 0.05, ROOMS)[0]
        for every in 4 ** torch.arange(6)
    ]
    assert cells[0] == 0.05
    assert cells == sorted(cells)
    assert cells[-1] > cells[-2] > cells[-3] > 0.05
    few = thinned(room(), 4000)
    cell, why = fitting_cell(measured([room(), few]), 0.05, ROOMS)  # the sparser of two decides
    width = max(extent(room()), extent(few))
    assert cell == pytest.approx(width / ROOMS.least)
    assert "m apart" in why


def test_descriptors_see_usual_clouds_in_their_own_cells_and_others_in_fitting_ones() -> None:
    options, clouds = RegisterOptions(device="cpu"), [room(), thinned(room(), 2)]
    choice = chosen(options, measured(clouds))[0]
    network, same = descriptor_of(options, choice, measured(clouds))
    assert isinstance(network, NetworkDescriptor)
    assert (network.benchmark, network.factor, same) == ("threedmatch", 1, choice)
    small = measured([cloud / 10 for cloud in clouds])
    other, told = descriptor_of(options, choice, small)
    assert other.voxel_size == pytest.approx(small.width / ROOMS.usual)
    assert "; cells of 0.0055 m in place of 0.05 m: the clouds are 0.277 m wide" in told.reason
    assert "cells of 0.0055" in other.name
    # twice as large, the same bits
    (a,), (b,) = replace(network, factor=2.0)([clouds[0] * 2]), network(clouds[:1])
    assert torch.equal(a.features, b.features)
    assert torch.equal(a.points, 2 * b.points)
    by_hand = RegisterOptions(model="fpfh")
    found, told = descriptor_of(by_hand, chosen(by_hand, small)[0], small)
    assert found.voxel_size == told.voxel_size == pytest.approx(small.width / ROOMS.usual)
    given = RegisterOptions(model="fpfh", voxel_size=0.02)
    assert descriptor_of(given, chosen(given, small)[0], small)[0].voxel_size == 0.02


@pytest.mark.parametrize("factor", [0.03, 300.0])
def test_the_pose_of_clouds_in_another_unit_is_the_same_in_that_unit(factor: float) -> None:
    pytest.importorskip("open3d")
    source, target, truth = two_views(3)
    found = pcnn.register(source * factor, target * factor, "fpfh", sensor_at_origin=False)
    assert float(rotation_error(found.transform, truth)) < 3.0
    apart = found.transform[:3, 3] / factor - truth[:3, 3]
    assert float(apart.norm()) < 0.15
    assert " m: the clouds are" in found.reason

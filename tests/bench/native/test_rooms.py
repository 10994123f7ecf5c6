from __future__ import annotations

import numpy as np
import pytest
import torch

from pcnn.bench.native.lines import sites_of
from pcnn.bench.native.rooms import room, size_name, surfaces
from pcnn.geometry import Kernel
from pcnn.ops.engine import resolve
from pcnn.ops.kernel_maps import map_between

CPU = torch.device("cpu")


def test_a_room_is_the_same_every_time_and_another_one_is_not() -> None:
    first, again, other = room(1, 3000, CPU), room(1, 3000, CPU), room(2, 3000, CPU)
    assert torch.equal(first.points, again.points)
    assert first.grid_size != other.grid_size
    assert first.name == "room1@3k (simulated)"


def test_a_room_has_the_points_asked_for_one_in_each_cell() -> None:
    cloud = room(3, 20_000, CPU)
    assert len(cloud.points) == 20_000
    cells = torch.floor(cloud.points.double() / cloud.grid_size)
    neighbours = len(torch.unique(cells, dim=0)) / len(cells)
    assert neighbours > 0.6, "cells begin elsewhere, but no cell is much fuller than another"
    assert (cloud.points[1:, 0] < cloud.points[:-1, 0]).any(), "in no order"


def test_points_have_as_many_neighbours_as_those_of_a_scanned_room() -> None:
    cloud = room(0, 20_000, CPU)
    sites = sites_of("native", cloud.points, cloud.grid_size)
    found = map_between(sites, sites, Kernel.of(3), resolve("auto"))
    assert found.triplets / sites.rows == pytest.approx(9.0, rel=0.15)


def test_surfaces_are_rectangles_of_a_room() -> None:
    corners, first, second = surfaces(5)
    assert corners.shape == first.shape == second.shape
    assert len(corners) >= 6 + 5 * 10
    np.testing.assert_allclose((first * second).sum(1), 0, atol=1e-9)
    heights = np.concatenate([corners, corners + first, corners + second])[:, 2]
    assert -1e-9 < heights.min() < heights.max() < 3.6


def test_sizes_have_short_names() -> None:
    assert [size_name(n) for n in (500, 20_000, 1_500_000)] == ["0.5k", "20k", "1.5m"]

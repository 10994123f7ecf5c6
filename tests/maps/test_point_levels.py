"""Levels of native points by device kernels against the torch functions, bit for bit."""

import pytest
import torch

from pcnn.geometry import Kernel, PointSet, point_set_of
from pcnn.maps import point_levels as module
from pcnn.maps.point_levels import Step, point_levels, strided_points
from tests.clouds import surface
from tests.maps.native_points import coarser, scan

pytestmark = pytest.mark.usefixtures("emulated")

STEPS = [Step(0, (2, 2, 2)), Step(1, (2, 2, 2)), Step(0, (1, 1, 3)), Step(2, (3, 1, 2))]


def same(found: PointSet, wanted: PointSet) -> None:
    for name in ("points", "keys", "inverse", "origins", "corners"):
        own, other = getattr(found, name), getattr(wanted, name)
        assert own.dtype == other.dtype
        assert torch.equal(own, other), name
    assert (found.chosen is None) == (wanted.chosen is None)
    if found.chosen is not None and wanted.chosen is not None:
        assert torch.equal(found.chosen, wanted.chosen)
    plain = (
        "voxel_size",
        "tensor_stride",
        "one_per_cell",
        "downsampling",
        "batch_size",
        "neighbourhood",
    )
    assert [getattr(found, name) for name in plain] == [getattr(wanted, name) for name in plain]


@pytest.mark.parametrize("sites", ["nearest", "cell_origin"])
@pytest.mark.parametrize("n", [0, 1, 33, 3000])
@pytest.mark.parametrize("passes", [1, 8])
def test_all_levels_at_once(n: int, sites: str, passes: int) -> None:
    root = scan(n, grid=(0.05, 0.07, 0.03), downsampling=sites)
    found, took = point_levels(root, STEPS, passes)
    assert took <= 8
    wanted = [root]
    for parent, stride in STEPS:
        wanted.append(coarser(wanted[parent], stride))
    for own, other in zip(found[1:], wanted[1:], strict=True):
        same(own, other)
    assert found[0] is root


@pytest.mark.usefixtures("reversed_blocks")
def test_ties_go_to_the_lowest_row() -> None:
    # corners of cells, copies: many points of a coarse cell are equally far from its centre
    points = surface(400).float().repeat(3, 1)
    root = point_set_of(points, voxel_size=1.0)
    for stride in ((2, 2, 2), (3, 2, 1)):
        same(strided_points(root, Kernel.of(stride, stride)), coarser(root, stride))


def test_frames_far_away() -> None:
    points = surface(500).double() * 0.3 + 5e5
    root = point_set_of(points, torch.arange(len(points)) % 3, 3, voxel_size=0.5)
    same(strided_points(root, Kernel.of((2, 2, 2), (2, 2, 2))), coarser(root, (2, 2, 2)))


def test_the_host_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    read = module.pinned.read_copy
    monkeypatch.setattr(module.pinned, "read_copy", lambda n: waits.append(0) or read(n))
    point_levels(scan(500), STEPS)
    assert len(waits) == 1


def test_no_levels() -> None:
    root = scan(10)
    assert point_levels(root, [])[0] == [root]

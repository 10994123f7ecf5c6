"""Levels of native points by device kernels against the torch functions, bit for bit."""

from collections.abc import Callable

import pytest
import torch

from pcnn.geometry import PointSet, point_set_of
from pcnn.maps import levels as module
from pcnn.maps.levels import Step, point_levels
from tests.clouds import surface
from tests.kernels.emulator import EmulatedModule
from tests.maps.native_points import coarser, scan

STEPS = [Step(0, (2, 2, 2)), Step(1, (2, 2, 2)), Step(0, (1, 1, 3)), Step(2, (3, 1, 2))]
PLAIN = "voxel_size", "tensor_stride", "one_per_cell", "batch_size"
TENSORS = "points", "keys", "inverse", "origins", "corners", "chosen"


def far() -> PointSet:
    points = surface(500).double() * 0.3 + 5e5
    batch = torch.arange(len(points)) % 3
    return point_set_of(points, batch, 3, voxel_size=0.5)


def ties() -> PointSet:
    # corners of cells, copies: many points of a coarse cell are equally far from its centre
    points = surface(400).float().repeat(3, 1)
    return point_set_of(points, voxel_size=1.0)


def scans(n: int) -> Callable[[], PointSet]:
    return lambda: scan(n, grid=(0.05, 0.07, 0.03))


CLOUDS = {"far": far, "ties": ties, **{str(n): scans(n) for n in (0, 1, 33, 3000)}}


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("passes", [1, 8])
def test_all_levels_at_once(name: str, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedModule, "descending", passes == 8)
    waits: list[int] = []
    read = module.read_copy
    monkeypatch.setattr(module, "read_copy", lambda n: waits.append(0) or read(n))
    root = CLOUDS[name]()
    assert point_levels(root, [])[0] == [root]
    found, took = point_levels(root, STEPS, passes)
    assert took <= 8
    assert len(waits) == (0 if name == "0" else 2 if took > passes else 1)
    wanted = [root]
    for parent, stride in STEPS:
        wanted.append(coarser(wanted[parent], stride))
    assert found[0] is root
    for own, other in zip(found[1:], wanted[1:], strict=True):
        for field in TENSORS:
            one, right = getattr(own, field), getattr(other, field)
            assert one.dtype == right.dtype
            assert torch.equal(one, right), field
        assert [getattr(own, field) for field in PLAIN] == [getattr(other, f) for f in PLAIN]

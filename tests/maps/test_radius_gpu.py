"""The radius search on a GPU against the torch functions on the CPU, at the size of scans."""

import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, point_set_of
from pcnn.maps.radius import RadiusSearch
from tests.maps.native_points import coarser, scan

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda")


def same(found: KernelMap, wanted: KernelMap) -> None:
    for name in ("pairs", "rows_csr"):
        for one, other in zip(found.layout(name), wanted.layout(name), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("n", [0, 1, 257, 5000, 100_000])
@pytest.mark.parametrize("size", [3, 5])
def test_scans(n: int, size: int) -> None:
    source = scan(n, clouds=8)
    there = source.to(DEVICE)
    wanted = RadiusSearch().build(source, source, Kernel.of(size))
    for _ in range(3):
        same(RadiusSearch().build(there, there, Kernel.of(size)), wanted)
    target = coarser(source, (2, 2, 2))
    below = target.to(DEVICE)
    kernel = Kernel.of(size, 2)
    same(RadiusSearch().build(there, below, kernel), RadiusSearch().build(source, target, kernel))


@pytest.mark.parametrize("sites", ["nearest", "cell_origin"])
@pytest.mark.parametrize("search", [RadiusSearch("drop"), RadiusSearch(metric="box")], ids=str)
def test_settings(sites: str, search: RadiusSearch) -> None:
    source = scan(20_000, grid=(0.05, 0.05, 0.1), downsampling=sites)
    there = source.to(DEVICE)
    for kernel in (Kernel.of(3), Kernel.of((1, 1, 3)), Kernel.of(3, dilation=2)):
        same(search.build(there, there, kernel), search.build(source, source, kernel))


def test_copies_of_one_point() -> None:
    points = torch.rand(40, 3).repeat(100, 1)
    source = point_set_of(points, grid_size=0.05)
    there = source.to(DEVICE)
    wanted = RadiusSearch().build(source, source, Kernel.of(3))
    same(RadiusSearch().build(there, there, Kernel.of(3)), wanted)

"""Device kernels of the radius search against the torch functions, bit for bit."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, PointSet, point_set_of
from pcnn.geometry.layouts import rows_csr
from pcnn.maps import neighbour_kernels, radius
from pcnn.maps.radius import RadiusSearch
from tests.clouds import surface
from tests.maps.guarded import guarded
from tests.maps.native_points import coarser, scan

pytestmark = pytest.mark.usefixtures("emulated")


def agree(
    monkeypatch: pytest.MonkeyPatch,
    source: PointSet,
    target: PointSet,
    kernel: Kernel,
    search: RadiusSearch | None = None,
    device: torch.device | str = "cpu",
) -> int:
    """Number of triplets, after comparing every tensor of both ways."""
    search, there = search or RadiusSearch(), source.to(device)
    with guarded(monkeypatch):
        below = there if target is source else target.to(device)
        found = search.build(there, below, kernel)
    with monkeypatch.context() as plain:
        plain.setattr(radius, "has_kernels", lambda device: False)
        wanted = search.build(source, target, kernel)
    assert found.has("rows_csr")
    assert found.symmetric == wanted.symmetric
    same(found.layout("pairs"), wanted.layout("pairs"))
    same(found.layout("rows_csr"), rows_csr(wanted))
    found.validate()
    # searched from the other side, and once more from this one
    for flipped in (False, True):
        side = KernelMap(found.edges, flipped)
        found.edges.layouts.pop(("rows_csr", flipped), None)
        with guarded(monkeypatch):
            same(side.layout("rows_csr"), rows_csr(KernelMap(wanted.edges, flipped)))
    return found.triplets


def same(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("n", [1, 33, 257, 3000])
@pytest.mark.parametrize("size", [3, 5])
def test_scans(device: torch.device, monkeypatch: pytest.MonkeyPatch, n: int, size: int) -> None:
    n *= 30 if n == 3000 and device.type == "cuda" else 1
    source = scan(n, clouds=8)
    kernel = Kernel.of(size)
    assert agree(monkeypatch, source, source, kernel, device=device) >= n
    target = coarser(source, (2, 2, 2))
    assert agree(monkeypatch, source, target, Kernel.of(size, 2), device=device) >= target.rows


@pytest.mark.parametrize(
    "search",
    [
        RadiusSearch("drop"),
        RadiusSearch(volume=8.0),
        RadiusSearch(cell=0.6),
        RadiusSearch(metric="box"),
    ],
    ids=str,
)
def test_settings(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, search: RadiusSearch
) -> None:
    n = 400 if device.type == "cpu" else 20_000
    source = scan(n, clouds=8)
    for kernel in (Kernel.of(3), Kernel.of((3, 1, 5))):
        assert agree(monkeypatch, source, source, kernel, search, device) > n


@pytest.mark.gpu
@pytest.mark.parametrize("search", [RadiusSearch("drop"), RadiusSearch(metric="box")], ids=str)
def test_cell_origins_and_cells_that_are_no_cubes(search: RadiusSearch) -> None:
    for sites in ("nearest", "cell_origin"):
        source = scan(20_000, 3, (0.05, 0.05, 0.1), sites)
        there = source.to("cuda")
        for kernel in (Kernel.of(3), Kernel.of((1, 1, 3)), Kernel.of(3, dilation=2)):
            found, wanted = (search.build(one, one, kernel) for one in (there, source))
            same(found.layout("pairs"), wanted.layout("pairs"))
            same(found.layout("rows_csr"), wanted.layout("rows_csr"))


def test_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    source = scan(400, grid=(0.05, 0.1, 0.02))
    target = coarser(source, (1, 1, 2))
    agree(monkeypatch, source, target, Kernel.of((1, 1, 3), (1, 1, 2), padding=0))
    agree(monkeypatch, source, source, Kernel.of(3, dilation=2))


@pytest.mark.parametrize("repeats", [3, 40])
def test_duplicates_and_ties(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, repeats: int
) -> None:
    # whole numbers: many distances equal the reach, many points share a place; with 40 copies the
    # triplets of a row are too many for insertion
    points = (surface(60).float()).repeat(repeats, 1)
    source = point_set_of(points, voxel_size=1.0)
    box = RadiusSearch(metric="box", volume=8.0 / 27)
    assert box.reach(source, Kernel.of(3)) == pytest.approx((1.0, 1.0, 1.0))
    assert agree(monkeypatch, source, source, Kernel.of(3), box, device) >= len(points) * repeats


@pytest.mark.parametrize("bits", [3, 6])
def test_numbers_of_cells_begin_anew(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    # a few bits: distant cells share their number, and runs of cells are cut in two
    monkeypatch.setattr(neighbour_kernels, "KEY_BITS", bits + 2)
    source = scan(500)
    agree(monkeypatch, source, source, Kernel.of(3))
    agree(monkeypatch, source, coarser(source, (3, 3, 3)), Kernel.of(5, 3))


@pytest.mark.usefixtures("reversed_blocks")
def test_blocks_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    source = scan(1500)
    agree(monkeypatch, source, source, Kernel.of(3))


def test_no_points_have_no_neighbours(device: torch.device) -> None:
    none = scan(0).to(device)
    assert RadiusSearch().build(none, none, Kernel.of(3)).triplets == 0


def test_queries_that_find_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = scan(100, clouds=1)
    far = replace(source, points=source.points + 1e3)
    assert agree(monkeypatch, source, far, Kernel.of(3)) == 0

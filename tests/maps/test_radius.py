"""Kernel maps of native points against loops over all pairs, on the host and by device kernels."""

import math
import random
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, PointSet, point_set_of
from pcnn.geometry.layouts import rows_csr
from pcnn.maps import neighbour_kernels, point_cells, radius
from pcnn.maps.point_cells import Reach
from pcnn.maps.point_memory import PendingMap
from pcnn.maps.radius import RadiusSearch, counted_maps, official_radius, slots_of
from tests.clouds import surface
from tests.kernels.emulator import EmulatedModule
from tests.maps.guarded import guarded
from tests.maps.native_points import coarser, scan

Triplets = list[tuple[int, int, int]]

K3 = Kernel.of(3)


def triplets(built: KernelMap) -> Triplets:
    slots, outs, ins = built.slot_index, built.out_index, built.in_index
    return list(zip(slots.tolist(), outs.tolist(), ins.tolist(), strict=True))


def within(d: np.ndarray, reach: Reach) -> np.ndarray:
    """The one comparison, in numpy's float32: ``d [..., 3]``."""
    assert d.dtype == np.float32
    if not isinstance(reach, float):
        return (np.abs(d) <= np.array(reach, dtype=np.float32)).all(-1)
    dx, dy, dz = np.moveaxis(d, -1, 0)
    with np.errstate(over="ignore"):
        return (dx * dx + dy * dy) + dz * dz <= np.float32(reach * reach)


def cells_of(offset: np.ndarray, edges: tuple[float, ...]) -> list[int]:
    """Cells of an offset, rounded half away from zero."""
    quotients = [float(value / np.float32(edge)) for value, edge in zip(offset, edges, strict=True)]
    return [int(math.copysign(math.floor(abs(q) + 0.5), q)) for q in quotients]


def all_pairs(
    source: PointSet,
    target: PointSet,
    kernel: Kernel,
    reach: Reach,
    edges: tuple[float, ...],
) -> Triplets:
    """(k, i, j) of every pair, one at a time."""
    centres, points = target.points.cpu().numpy(), source.points.cpu().numpy()
    near = within(centres[:, None] - points[None], reach)
    near &= target.batch_index.cpu().numpy()[:, None] == source.batch_index.cpu().numpy()[None]
    found = []
    for i, j in zip(*near.nonzero(), strict=True):
        slot = 0
        for cell, size in zip(cells_of(points[j] - centres[i], edges), kernel.size, strict=True):
            slot = slot * size + max(-(size // 2), min(size // 2, cell)) + size // 2
        found.append((slot, int(i), int(j)))
    return sorted(found)


def test_halves_round_away_from_zero_and_large_quotients_stay_exact() -> None:
    values = [0.5, -0.5, 1.5, -1.5, 2.5, 0.49999997, -0.49999997, 1.4999999, 0.0, 4194304.25]
    wanted = [1, -1, 2, -2, 3, 0, 0, 1, 0, 4194304]
    for value, cell in zip(values, wanted, strict=True):
        width = 2 * abs(cell) + 1
        offset = torch.tensor([[value, 0.0, 0.0]])
        slot = slots_of(offset, (1.0, 1.0, 1.0), (width, 1, 1))
        assert slot.tolist() == [cell + abs(cell)]


def copies(repeats: int) -> tuple[PointSet, PointSet, Kernel]:
    # many distances equal the reach, many points share a place; with 40 copies the triplets of a
    # row are too many for insertion
    edge = 1 / official_radius(1.0, 3)
    points = point_set_of(surface(60).float().repeat(repeats, 1), voxel_size=edge)
    return points, points, K3


def far() -> tuple[PointSet, PointSet, Kernel]:
    points = scan(100, 1)
    return points, replace(points, points=points.points + 1e3), K3


FURTHER = {
    24: lambda: (*[scan(1500, clouds=8)] * 2, K3),
    25: partial(copies, 3),
    26: partial(copies, 40),
    27: far,
}


@cache
def drawn(number: int) -> tuple[PointSet, PointSet, Kernel]:
    """Points of 8 clouds, and a kernel of odd size."""
    if number in FURTHER:
        return FURTHER[number]()
    draw = random.Random(number)
    grid = draw.choice([(0.05, 0.05, 0.05), (0.05, 0.05, 0.05), (0.05, 0.1, 0.02)])
    source = scan(draw.choice([0, 1, 2, 33, 150, 257, 257]), clouds=8, grid=grid)
    odd = draw.choice([(3, 3, 3), (5, 5, 5), (1, 1, 3), (3, 1, 5)])
    stride = draw.choice([(1, 1, 1), (2, 2, 2), (1, 1, 2)])
    dilation = draw.choice([1, 1, 2])
    padding = draw.choice([None, None, 0])
    kernel = Kernel.of(odd, stride, dilation, padding)
    target = source if max(stride) == 1 and number % 4 else coarser(source, stride)
    return source, target, kernel


def wanted_of(source: PointSet, target: PointSet, kernel: Kernel) -> Triplets:
    """The definition, from the sizes of cells and the kernel."""
    edges = [e * d for e, d in zip(source.voxel_size, kernel.dilation, strict=True)]
    cubic = len(set(kernel.size)) == 1 and len(set(edges)) == 1
    reach: Reach = official_radius(edges[0], kernel.size[0])
    if not cubic:
        x, y, z = (edge * size / 2 for edge, size in zip(edges, kernel.size, strict=True))
        reach = x, y, z
    usual = Kernel.of(kernel.size, kernel.stride, kernel.dilation).padding
    sides = zip(source.voxel_size, usual, kernel.padding, strict=True)
    shift = torch.tensor([edge * (own - given) for edge, own, given in sides])
    moved = replace(target, points=target.points + shift) if shift.any() else target
    return all_pairs(source, moved, kernel, reach, tuple(edges))


@pytest.mark.parametrize("number", range(24))
@pytest.mark.parametrize("chunk", [1 << 21, 300])
def test_maps_equal_loops_over_all_pairs(
    number: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_cells, "CHUNK", chunk)
    source, target, kernel = drawn(number)
    built = RadiusSearch().build(source, target, kernel)
    found = triplets(built)
    assert found == wanted_of(source, target, kernel)
    assert built.symmetric == (kernel.is_symmetric and source is target)
    assert not built.one_per_slot
    if built.symmetric:
        assert sorted((kernel.volume - 1 - k, j, i) for k, i, j in found) == found


def same(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.cpu(), other)


def agree(
    monkeypatch: pytest.MonkeyPatch,
    device: torch.device,
    source: PointSet,
    target: PointSet,
    kernel: Kernel,
) -> None:
    """Compare every tensor that kernels write with torch's."""
    with monkeypatch.context() as plain:
        plain.setattr(radius, "has_kernels", lambda device: False)
        wanted = RadiusSearch().build(source, target, kernel)
    there = source.to(device)
    with guarded(monkeypatch):
        below = there if target is source else target.to(device)
        found = RadiusSearch().build(there, below, kernel)
    assert found.has("rows_csr") or not (source.rows and target.rows)
    assert found.symmetric == wanted.symmetric
    same(found.layout("pairs"), wanted.layout("pairs"))
    same(found.layout("rows_csr"), rows_csr(wanted))
    same(found.transpose().layout("rows_csr"), rows_csr(wanted.transpose()))


@pytest.mark.parametrize("number", range(28))
def test_device_kernels_find_the_same(
    device: torch.device, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmulatedModule, "descending", number % 2 == 1)
    if number % 3 == 0:  # a few bits: distant cells share their number, runs are cut in two
        monkeypatch.setattr(neighbour_kernels, "KEY_BITS", 5 + number % 4)
    agree(monkeypatch, device, *drawn(number))


def test_maps_counted_together_are_those_counted_alone(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radius, "MAX_TASKS", 4)
    fine = scan(300).to(device)
    coarse, five = fine.strided(Kernel.of(2, 2)), Kernel.of(5)
    sides = [(fine, fine, K3), (fine, fine, five), (coarse, coarse, K3), (coarse, fine, K3)]
    sides += [(fine, coarse, Kernel.of(3, 2)), (fine, coarse, Kernel.of(2, 2)), (fine, fine, K3)]
    pending = [one for one in counted_maps(sides) if one is not None]
    for side, built in zip(sides, PendingMap.finish_all(pending, fine), strict=True):
        alone = RadiusSearch().build(*side)
        for name in ("pairs", "rows_csr", "counts"):
            same(built.layout(name), tuple(one.cpu() for one in alone.layout(name)))


def test_upsampling_onto_any_points() -> None:
    every = scan(600)
    kept = every.points, every.batch_index, every.batch_size, every.voxel_size
    thinned = point_set_of(*kept, thin=0.06)
    coarse = thinned.strided(Kernel.of(2, 2))
    for target in (thinned, every):
        built = coarse.map_to(target, K3, RadiusSearch())
        assert triplets(built) == wanted_of(coarse, target, K3)
        assert len(built.out_index.unique()) == target.rows  # no output is left out
    with pytest.raises(ValueError, match="some would have no neighbour"):
        coarse.map_to(thinned, Kernel.of(1), RadiusSearch())


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "grid", "expected"),
    [
        ("kitti005", 0.05, (378_921, 929_649)),
        ("kitti010", 0.10, (398_836, 1_063_398)),
        ("dm002", 0.02, (584_653, 1_677_569)),
        ("s3dis002", 0.02, (1_789_947, 5_052_309)),
    ],
)
def test_triplets_of_real_scans(
    device: torch.device, data_root, name: str, grid: float, expected
) -> None:
    """As many as the official code finds on the same points, kernels of 3 and 5."""
    path = data_root / "clouds.npz"
    if not path.exists():
        pytest.skip(f"no {path}")
    points = torch.from_numpy(np.load(path)[name])
    source = point_set_of(points, voxel_size=grid).to(device)
    counts = [RadiusSearch().build(source, source, Kernel.of(size)).triplets for size in (3, 5)]
    assert tuple(counts) == expected

"""Kernel maps of native points against loops over all pairs, and against voxels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pcnn.geometry import Kernel, KernelMap
from pcnn.maps.local_voxels import official_radius
from pcnn.maps.radius import RadiusSearch
from tests import oracle
from tests.clouds import surface
from tests.maps.native_points import Cloud, cloud, coarser

Triplets = list[tuple[int, int, int]]


def scan(n: int, seed: int = 0, grid: tuple[float, float, float] = (0.05,) * 3, **kwargs) -> Cloud:
    generator = torch.Generator().manual_seed(seed)
    cells = surface(n, seed) + torch.rand(n, 3, generator=generator)
    batch = torch.randint(0, 3, (n,), generator=generator)
    return cloud(cells * torch.tensor(grid), batch, grid, **kwargs)


def triplets(built: KernelMap) -> Triplets:
    built.validate()
    slots, outs, ins = built.slot_index, built.out_index, built.in_index
    return list(zip(slots.tolist(), outs.tolist(), ins.tolist(), strict=True))


def all_pairs(
    source: Cloud, target: Cloud, kernel: Kernel, reach: object, edges: tuple[float, ...], rule: str
) -> Triplets:
    """(k, i, j) of every pair, one at a time, with numpy's float32 scalars."""
    found = []
    places = zip(target.points.numpy(), target.batch_index.tolist(), strict=True)
    for i, (centre, cloud_of) in enumerate(places):
        for j in (source.batch_index == cloud_of).nonzero()[:, 0].tolist():
            d = centre - source.points.numpy()[j]
            if isinstance(reach, float):
                near = (d[0] * d[0] + d[1] * d[1]) + d[2] * d[2] <= np.float32(reach * reach)
            else:
                near = all(abs(v) <= np.float32(h) for v, h in zip(d, reach, strict=True))
            slot = 0
            for value, edge, size in zip(-d, edges, kernel.size, strict=True):
                q = float(value / np.float32(edge))
                cell = int(math.copysign(math.floor(abs(q) + 0.5), q))
                inside = max(-(size // 2), min(size // 2, cell))
                near &= rule == "clamp" or inside == cell
                slot = slot * size + inside + size // 2
            if near:
                found.append((slot, i, j))
    return sorted(found)


@pytest.mark.parametrize("outside", ["clamp", "drop"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("dilation", "size"), [(1, 3), (1, 5), (2, 3)])
def test_a_cubic_kernel_sees_a_ball(outside: str, stride: int, dilation: int, size: int) -> None:
    source = scan(250)
    target = source if stride == 1 else coarser(source, (stride,) * 3)
    kernel = Kernel.of(size, stride, dilation)
    built = RadiusSearch(outside).build(source, target, kernel)
    edge = 0.05 * dilation
    reach = official_radius(edge, size)
    found = triplets(built)
    assert found == all_pairs(source, target, kernel, reach, (edge,) * 3, outside)
    assert built.symmetric == (stride == 1)
    assert not built.one_per_slot
    if built.symmetric:
        mirrored = sorted((kernel.volume - 1 - k, j, i) for k, i, j in found)
        assert mirrored == found


@pytest.mark.parametrize(
    ("size", "stride", "grid"),
    [
        ((1, 1, 3), (1, 1, 2), (0.05, 0.05, 0.05)),
        ((3, 3, 3), (1, 1, 1), (0.05, 0.05, 0.1)),
        ((3, 1, 5), (1, 1, 1), (0.05, 0.05, 0.05)),
    ],
    ids=str,
)
def test_any_other_kernel_sees_its_box(size, stride, grid) -> None:
    source = scan(250, grid=grid)
    target = coarser(source, stride) if max(stride) > 1 else source
    kernel = Kernel.of(size, stride)
    reach = tuple(edge * cells / 2 for edge, cells in zip(grid, size, strict=True))
    built = RadiusSearch().build(source, target, kernel)
    assert triplets(built) == all_pairs(source, target, kernel, reach, grid, "clamp")


def test_a_kernel_of_five_in_the_field_of_three() -> None:
    source = scan(250)
    search = RadiusSearch(cell=0.6)
    assert search.reach(source, Kernel.of(5)) == pytest.approx(official_radius(0.05, 3))
    fine = search.build(source, source, Kernel.of(5))
    coarse = RadiusSearch().build(source, source, Kernel.of(3))
    assert sorted(pair[1:] for pair in triplets(fine)) == sorted(
        pair[1:] for pair in triplets(coarse)
    )
    assert fine.volume == 125
    wide = RadiusSearch(volume=8.0).build(source, source, Kernel.of(3))
    reach = official_radius(0.05, 3, 8.0)
    assert triplets(wide) == all_pairs(source, source, Kernel.of(3), reach, (0.05,) * 3, "clamp")


def test_padding_moves_the_field() -> None:
    source = scan(200)
    target = coarser(source, (2, 2, 2))
    shifted = Cloud(target.points + 0.05, target.keys, target.grid_size)
    padded = RadiusSearch().build(source, target, Kernel.of(3, 2, padding=0))
    centred = RadiusSearch().build(source, shifted, Kernel.of(3, 2))
    assert triplets(padded) == triplets(centred)


@pytest.mark.parametrize("stride", [(2, 2, 2), (1, 1, 2), (3, 3, 3)], ids=str)
@pytest.mark.parametrize("derived", [True, False])
def test_a_kernel_that_tiles_space_asks_cells(stride, derived, monkeypatch) -> None:
    source = scan(300)
    kernel = Kernel.of(stride, stride, padding=0)
    target = coarser(source, stride)
    monkeypatch.setattr(Cloud, "is_below", lambda self, coarse, kernel: derived)
    built = RadiusSearch().build(source, target, kernel)
    rows = {tuple(cell): i for i, cell in enumerate(target.cells.tolist())}
    expected = []
    for j, (b, *cell) in enumerate(source.cells.tolist()):
        coarse = [c // s for c, s in zip(cell, stride, strict=True)]
        x, y, z = (c % s for c, s in zip(cell, stride, strict=True))
        expected.append(((x * stride[1] + y) * stride[2] + z, rows[(b, *coarse)], j))
    assert triplets(built) == sorted(expected)
    assert built.one_per_slot_transposed
    # given points may lack a parent
    some = Cloud(
        target.points[::2], target.keys[::2].contiguous(), target.grid_size, one_per_cell=True
    )
    if not derived:
        kept = [(k, i // 2, j) for k, i, j in sorted(expected) if i % 2 == 0]
        assert triplets(RadiusSearch().build(source, some, kernel)) == kept


@pytest.mark.parametrize(
    "kernel",
    [
        Kernel.of(3),
        Kernel.of(5),
        Kernel.of(2),
        Kernel.of(4, 2),
        Kernel.of(2, 2),
        Kernel.of(3, 2),
        Kernel.of(3, 2, padding=0),
        Kernel.of((1, 1, 3), (1, 1, 2), padding=0),
        Kernel.of(3, dilation=2),
        Kernel.of(3, 3, dilation=3, padding=(0, 1, 2)),
        Kernel.of(1, 2),
    ],
    ids=lambda kernel: f"{kernel.size}{kernel.stride}{kernel.dilation}{kernel.padding}",
)
def test_cell_origins_convolve_as_voxels(kernel: Kernel) -> None:
    source = scan(400, sites="cell_origin")
    target = coarser(source, kernel.stride) if kernel.is_strided else source
    built = RadiusSearch().build(source, target, kernel)
    outputs = target.cells * torch.tensor((1, *kernel.stride))
    relation = (kernel.size, kernel.stride, kernel.dilation, kernel.padding)
    expected = oracle.triplets(source.cells.tolist(), outputs.tolist(), *relation)
    found = triplets(built)
    assert sorted((i, j, k) for k, i, j in found) == sorted(expected)
    assert found == sorted(found)
    assert built.one_per_slot
    assert built.one_per_slot_transposed


@pytest.mark.parametrize("n", [0, 1, 2])
def test_small_clouds(n: int) -> None:
    for sites in ("nearest", "cell_origin"):
        made = scan(max(n, 1), sites=sites)
        single = n < 2 or sites == "cell_origin"
        source = Cloud(made.points[:n], made.keys[:n], made.grid_size, sites, single)
        same = RadiusSearch().build(source, source, Kernel.of(3))
        same.validate()
        assert same.triplets >= source.rows
        if n:
            for kernel in (Kernel.of(2, 2), Kernel.of(3, 2)):
                built = RadiusSearch().build(source, coarser(source, kernel.stride), kernel)
                built.validate()
                assert built.triplets == source.rows or not kernel.is_disjoint
        else:
            assert RadiusSearch().build(source, source, Kernel.of(2, 2)).triplets == 0


def test_the_share_outside() -> None:
    source = scan(300)
    kept = RadiusSearch("drop").build(source, source, Kernel.of(3)).triplets
    every = RadiusSearch().build(source, source, Kernel.of(3)).triplets
    share = RadiusSearch().outside_share(source, source, Kernel.of(3))
    assert 0 < share < 1
    assert share == pytest.approx(1 - kept / every)
    assert RadiusSearch().outside_share(source, source, Kernel.of(2, 2)) == 0.0


def test_errors_say_what_is_served() -> None:
    source = scan(50)
    with pytest.raises(ValueError, match="odd kernel sizes, and even ones with stride = size"):
        RadiusSearch().build(source, source, Kernel.of(2))
    crowded = Cloud(source.points, source.keys, source.grid_size)
    with pytest.raises(ValueError, match="several output points"):
        RadiusSearch().build(source, crowded, Kernel.of(2, 2))
    with pytest.raises(ValueError, match="metric=ball serves cubic kernels"):
        RadiusSearch(metric="ball").build(source, source, Kernel.of((1, 1, 3)))
    for wrong in ({"outside": "keep"}, {"metric": "cube"}, {"volume": 0.0}, {"cell": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RadiusSearch(**wrong)


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
def test_triplets_of_real_scans(data_root, name: str, grid: float, expected) -> None:
    """As many as the official code finds on the same points, kernels of 3 and 5."""
    path = data_root / "clouds.npz"
    if not path.exists():
        pytest.skip(f"no {path}")
    points = torch.from_numpy(np.load(path)[name])
    source = cloud(points, grid=(grid,) * 3)
    counts = [RadiusSearch().build(source, source, Kernel.of(size)).triplets for size in (3, 5)]
    assert tuple(counts) == expected

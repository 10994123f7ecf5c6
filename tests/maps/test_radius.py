"""Kernel maps of native points against loops over all pairs, and against voxels."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, PointSet, point_set_of
from pcnn.maps.local_voxels import official_radius
from pcnn.maps.radius import RadiusSearch
from tests import oracle
from tests.maps.native_points import coarser, scan, single

Triplets = list[tuple[int, int, int]]


def triplets(built: KernelMap) -> Triplets:
    built.validate()
    slots, outs, ins = built.slot_index, built.out_index, built.in_index
    return list(zip(slots.tolist(), outs.tolist(), ins.tolist(), strict=True))


def all_pairs(
    source: PointSet,
    target: PointSet,
    kernel: Kernel,
    reach: object,
    edges: tuple[float, ...],
    rule: str,
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
@pytest.mark.parametrize(("dilation", "size"), [(1, 5), (2, 3)])
def test_a_cubic_kernel_sees_a_ball(outside: str, stride: int, dilation: int, size: int) -> None:
    source = scan(150)
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
    shifted = replace(target, points=target.points + 0.05)
    padded = RadiusSearch().build(source, target, Kernel.of(3, 2, padding=0))
    centred = RadiusSearch().build(source, shifted, Kernel.of(3, 2))
    assert triplets(padded) == triplets(centred)


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
    crowded = scan(400, downsampling="cell_origin")
    for source in (single(crowded), crowded):
        target = source.strided(kernel)
        built = RadiusSearch().build(source, target, kernel)
        found = triplets(built)
        assert found == sorted(found)
        assert built.one_per_slot == source.one_per_cell
        assert built.one_per_slot_transposed or not target.one_per_cell
        # voxels: the cells of the points, the outputs in units of the finer level
        cells, inverse = source.cells.long().unique(dim=0, return_inverse=True)
        outputs = target.cells.long() * torch.tensor((1, *kernel.stride))
        relation = (kernel.size, kernel.stride, kernel.dilation, kernel.padding)
        edges = oracle.triplets(cells.tolist(), outputs.unique(dim=0).tolist(), *relation)
        own = inverse.tolist()
        out_rows = outputs.unique(dim=0, return_inverse=True)[1].tolist()
        assert {(out_rows[i], own[j], k) for k, i, j in found} == edges
        if source.one_per_cell:
            assert len(found) == len(edges)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("sites", ["nearest", "cell_origin"])
def test_small_clouds(n: int, sites: str) -> None:
    source = scan(n, downsampling=sites)
    same = RadiusSearch().build(source, source, Kernel.of(3))
    same.validate()
    assert same.triplets >= source.rows == n
    for kernel in (Kernel.of(2, 2), Kernel.of(3, 2)):
        built = RadiusSearch().build(source, source.strided(kernel), kernel)
        built.validate()
        assert built.triplets == n or not kernel.is_disjoint


def test_the_share_outside() -> None:
    source = scan(300)
    kept = RadiusSearch("drop").build(source, source, Kernel.of(3)).triplets
    every = RadiusSearch().build(source, source, Kernel.of(3)).triplets
    share = RadiusSearch().outside_share(source, source, Kernel.of(3))
    assert 0 < share < 1
    assert share == pytest.approx(1 - kept / every)
    assert RadiusSearch().outside_share(source, source, Kernel.of(2, 2)) == 0.0


@pytest.mark.parametrize("grid", [(0.05, 0.05, 0.05), (0.05, 0.1, 0.03)], ids=str)
@pytest.mark.parametrize("stride", [2, 3])
def test_strided_kernels_may_cover_every_point(grid: tuple[float, ...], stride: int) -> None:
    source = scan(500, grid=grid)
    kernel = Kernel.of(3, stride, padding=1)  # at stride 3 it lies a cell beside its output
    target = source.strided(kernel)
    usual, covering = (RadiusSearch(cover=c).build(source, target, kernel) for c in (False, True))
    assert len(usual.in_index.unique()) < source.rows
    assert len(covering.in_index.unique()) == source.rows
    assert set(triplets(usual)) < set(triplets(covering))
    # kernels of stride 1 see what they saw
    kernel = Kernel.of(3)
    assert RadiusSearch(cover=True).reach(source, kernel) == RadiusSearch().reach(source, kernel)


def test_upsampling_onto_any_points() -> None:
    every = scan(600)
    thinned = point_set_of(
        every.points, every.batch_index, every.batch_size, every.voxel_size, thin=0.06
    )
    coarse = thinned.strided(Kernel.of(2, 2))
    for target in (thinned, every):
        built = coarse.map_to(target, Kernel.of(3), RadiusSearch())
        edge = coarse.voxel_size[0]
        wanted = all_pairs(
            coarse, target, Kernel.of(3), official_radius(edge, 3), (edge,) * 3, "clamp"
        )
        assert triplets(built) == wanted
        assert len(built.out_index.unique()) == target.rows  # no output is left out
    for search, size in ((RadiusSearch(), 1), (RadiusSearch(volume=0.5), 3)):
        with pytest.raises(ValueError, match="some would have no neighbour"):
            coarse.map_to(thinned, Kernel.of(size), search)
    box = RadiusSearch(metric="box", volume=0.2)
    with pytest.raises(ValueError, match="m per axis from the nearest"):
        coarse.map_to(thinned, Kernel.of(3), box)
    origins = scan(300, downsampling="cell_origin")
    with pytest.raises(ValueError, match="use ConvTranspose3d or unpool"):
        origins.strided(Kernel.of(2, 2)).map_to(origins, Kernel.of(3), RadiusSearch())


@pytest.mark.parametrize("stride", [1, 2])
def test_cells_of_two_makers_count_from_one_place(stride: int, where: str) -> None:
    grid = 0.0625
    points = scan(200, grid=(grid,) * 3)
    half = points.points[:, 0] > points.points[:, 0].median()
    kernel = Kernel.of(3, stride)
    found = []
    # a cloud whose middle lies beyond 2^15 cells counts its cells from another place
    for shift in (0, 2**15 - 2):
        places = points.positions - points.positions[half].amin(0)
        places += torch.tensor([shift * grid, 0.0, 0.0], dtype=torch.float64)
        made = partial(point_set_of, batch_size=3, voxel_size=grid, downsampling="cell_origin")
        source = made(places, points.batch_index)
        target = made(places[half], points.batch_index[half])
        assert torch.equal(source.corners, target.corners) == (shift == 0)
        found.append(triplets(source.map_to(target.strided(kernel), kernel, RadiusSearch())))
    assert len(found[0]) > half.sum() / stride**3
    assert found[0] == found[1]


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

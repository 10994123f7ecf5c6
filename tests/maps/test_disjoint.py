"""Maps of kernels that tile space: one output and one slot for every input."""

import itertools
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, PointSet, VoxelGrid, point_set_of
from pcnn.maps import SortedSearch
from pcnn.maps.base import Sites
from pcnn.maps.disjoint import DisjointMap, disjoint_maps
from pcnn.maps.levels import pack_cells, unique_sites
from pcnn.maps.radius import RadiusSearch
from tests.clouds import batched, surface, triplets_of
from tests.maps.guarded import guarded

KERNELS = [
    Kernel.of(2, 2),
    Kernel.of(3, 3),
    Kernel.of((1, 1, 2), (1, 1, 2)),
    Kernel.of((2, 4, 2), (2, 4, 2)),
]
of_kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel.size))


def brute_force(source: PointSet, target: PointSet, kernel: Kernel) -> list[tuple[int, int, int]]:
    """Every point in the coarse cell of every output: its place there, from its coordinates."""
    fine, steps = np.array(source.voxel_size), np.array(kernel.stride)
    found = []
    corners = source.corners.numpy()
    for i, (batch, *cell) in enumerate(target.cells.tolist()):
        low = corners[batch] + np.array(cell) * fine * steps
        places = np.floor((source.positions.numpy() - low) / fine).astype(int)
        inside = ((places >= 0) & (places < steps)).all(1) & (source.batch_index.numpy() == batch)
        for j in inside.nonzero()[0]:
            x, y, z = places[j]
            found.append((i, int(j), int((x * steps[1] + y) * steps[2] + z)))
    return sorted(found, key=lambda edge: (edge[2], edge[0], edge[1]))


def alike(built: KernelMap, wanted: KernelMap, *names: str) -> None:
    for view, other in ((built, wanted), (built.transpose(), wanted.transpose())):
        for name in names:
            for got, expected in zip(view.layout(name), other.layout(name), strict=True):
                assert got.dtype == expected.dtype
                assert torch.equal(got, expected), name


@of_kernels
@pytest.mark.parametrize("n", [0, 1, 300])
def test_triplets_equal_brute_force(
    n: int, kernel: Kernel, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, batch = batched(n)
    source = point_set_of(points, batch, 3, (0.5, 0.25, 0.5))
    levels = [source, source.strided(kernel)]  # repeated cells, then one point each
    levels.append(levels[1].strided(kernel))
    far = Kernel.of(kernel.size, kernel.stride)
    plain = []
    for fine, coarse in itertools.pairwise(levels):
        plain.append(fine.map_to(coarse, far, RadiusSearch()))
        assert triplets_of(plain[-1]) == brute_force(fine, coarse, kernel)
        assert plain[-1].triplets == fine.rows
    request.getfixturevalue("emulated")
    request.getfixturevalue("reversed_blocks")
    for pair, wanted in zip(itertools.pairwise(levels), plain, strict=True):
        with guarded(monkeypatch) if n else nullcontext():
            built = RadiusSearch().build(*pair, kernel)
        assert built.one_per_slot == wanted.one_per_slot == pair[0].one_per_cell
        assert built.transpose().one_per_slot
        assert (built.n_in, built.n_out) == (wanted.n_in, wanted.n_out)
        alike(built, wanted, "pairs", "counts", "rows_csr", *["table"] * built.one_per_slot)


def test_levels_between_are_passed_over() -> None:
    points, batch = batched(300)
    source = point_set_of(points, batch, 3, 0.5)
    far = source.strided(Kernel.of(2, 2)).strided(Kernel.of((1, 2, 3), (1, 2, 3)))
    kernel = Kernel.of((2, 4, 6), (2, 4, 6))
    built = source.map_to(far, kernel, RadiusSearch())
    assert triplets_of(built) == brute_force(source, far, kernel)
    with pytest.raises(ValueError, match="by the kernel's stride"):
        RadiusSearch().build(source, far, Kernel.of(2, 2))


#: A sort of all levels; more tasks of tiling maps than a launch takes come of them.
STRIDES = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 2, 1), (4, 4, 4), (6, 6, 6), (2, 4, 2), (8, 8, 8)]


@pytest.mark.parametrize("fixed", [False, True])
def test_more_maps_of_voxels_than_a_launch_takes(
    device: torch.device, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 100_000 if device.type == "cuda" else 2500
    cells = torch.cat([torch.randint(0, 3, (n, 1)), surface(n, seed=2)], 1).to(device, torch.int32)
    keys, extent = pack_cells(cells)
    finest = unique_sites(keys, extent, [(1, 1, 1)])
    rows = int(finest.counts[0])
    root = finest.keys[0, :rows].contiguous()
    levels = unique_sites(root, extent, STRIDES)
    grids = [
        VoxelGrid(levels.keys[level, :count], 3, 1000, stride)
        for level, (count, stride) in enumerate(zip(levels.counts.tolist(), STRIDES, strict=True))
    ]
    cases, maps = [], []
    for (fine, spacing), (coarse, stride) in itertools.permutations(enumerate(STRIDES), 2):
        if any(s % t for s, t in zip(stride, spacing, strict=True)):
            continue
        x, y, z = (s // t for s, t in zip(stride, spacing, strict=True))
        kernel = Kernel.of((x, y, z), (x, y, z), padding=0)
        sites = Sites(levels.keys[fine], rows, levels.counts[fine : fine + 1], fixed)
        first = levels.first[fine] if fine else None
        counts = torch.zeros(kernel.volume, dtype=torch.int32, device=device)
        cases.append((grids[fine], grids[coarse], kernel))
        parents = levels.inverse[coarse]
        maps.append(DisjointMap(sites, first, parents, kernel.size, spacing, rows, counts))
    assert len(maps) > 16
    with guarded(monkeypatch):
        tables = disjoint_maps(maps)
    for built, entry, (source, target, kernel) in zip(tables, maps, cases, strict=True):
        truth = SortedSearch().build(source, target, kernel)
        alike(built.kernel_map(source.rows, target.rows), truth, "table", "masks", "pairs")
        assert torch.equal(entry.counts.long(), truth.layout("counts")[0])
        above = torch.zeros(source.rows, dtype=torch.int64, device=device)
        above[truth.in_index.long()] = truth.out_index.long()
        assert torch.equal(built.inverse[: source.rows], above)
        if fixed:
            assert (built.table_t[source.rows :] == -1).all()
            assert not built.masks_t[source.rows :].any()
            assert not built.inverse[source.rows :].any()

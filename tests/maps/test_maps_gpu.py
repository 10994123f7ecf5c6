"""Maps by device kernels at the size of scans; the same tests run small through the emulator.

Memory that was not written is poisoned (tests/conftest.py), so equality also says that all is
written.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.maps import SortedSearch
from pcnn.maps.base import Sites
from pcnn.maps.disjoint import DisjointMap, disjoint_maps
from pcnn.maps.levels import extent_of, pack_cells, unique_sites
from pcnn.maps.reached_sites import reached_sites
from pcnn.ops.sites import output_sites
from tests.clouds import surface, surface_grid
from tests.maps.guarded import POISON, guarded

FEW = [Kernel.of(3), Kernel.of(5), Kernel.of(2, 2), Kernel.of(3, 2)]
#: A sort of all levels; more tasks of tiling maps than a launch takes come of them.
STRIDES = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 2, 1), (4, 4, 4), (6, 6, 6), (2, 4, 2), (8, 8, 8)]


def size(device: torch.device) -> int:
    return 100_000 if device.type == "cuda" else 100


def used(tiles: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The defined part of the layout ``tiles``: slots and inputs up to the count of a tile."""
    out, slots, counts, rows = tiles
    listed = torch.arange(slots.shape[1], device=slots.device) < counts[:, None]
    return out, slots[listed], counts, rows[listed]


def content(view: KernelMap) -> dict[str, tuple[Tensor, ...]]:
    names = ("table", "masks", "counts", "pairs")
    return {name: view.layout(name) for name in names} | {"tiles": used(view.layout("tiles"))}


def check(built: KernelMap, truth: KernelMap) -> None:
    for view, wanted in ((built, truth), (built.transpose(), truth.transpose())):
        found, right = content(view), content(wanted)
        for name in found:
            for one, other in zip(found[name], right[name], strict=True):
                assert torch.equal(one.long(), other.long()), (name, view.flipped)


def shuffled_cells(device: torch.device, batch_size: int = 3) -> Tensor:
    """``[P, 4]`` int32 in any order, with duplicates; more than one tile of a sort."""
    n = max(2500, 2 * size(device))
    clouds = torch.randint(0, batch_size, (n, 1))
    cells = torch.cat([clouds, surface(n, seed=2)], 1).to(torch.int32)
    return torch.cat([cells, cells[: n // 3]])[torch.randperm(n + n // 3)].to(device)


def test_more_tiling_maps_than_a_launch_takes(device: torch.device) -> None:
    cells = shuffled_cells(device)
    keys, extent = pack_cells(cells, DEFAULT_FORMAT)
    finest = unique_sites(keys, extent, [(1, 1, 1)], DEFAULT_FORMAT)
    rows = int(finest.counts[0])
    root = finest.keys[0, :rows].contiguous()
    levels = unique_sites(root, extent, STRIDES, DEFAULT_FORMAT)
    numbers = levels.counts.tolist()
    grids = [
        VoxelGrid(levels.keys[level, :count], 3, 1000, stride)
        for level, (count, stride) in enumerate(zip(numbers, STRIDES, strict=True))
    ]
    cases, maps = [], []
    for (fine, spacing), (coarse, stride) in itertools.permutations(enumerate(STRIDES), 2):
        whole = all(s % t == 0 for s, t in zip(stride, spacing, strict=True))
        x, y, z = (s // t for s, t in zip(stride, spacing, strict=True))
        if not whole:
            continue
        kernel = Kernel.of((x, y, z), (x, y, z), padding=0)
        sites = Sites(levels.keys[fine], rows, levels.counts[fine : fine + 1])
        first = levels.first[fine] if fine else None
        counts = torch.zeros(kernel.volume, dtype=torch.int32, device=device)
        cases.append((fine, coarse, kernel, counts))
        parents = levels.inverse[coarse]
        maps.append(DisjointMap(sites, first, parents, kernel.size, spacing, rows, counts))
    assert len(maps) > 16
    tables = disjoint_maps(maps, DEFAULT_FORMAT)
    for built, (fine, coarse, kernel, counts) in zip(tables, cases, strict=True):
        source, target = grids[fine], grids[coarse]
        truth = SortedSearch().build(source, target, kernel)
        kernel_map = built.kernel_map(source.rows, target.rows)
        check(kernel_map, truth)
        assert torch.equal(counts.long(), truth.layout("counts")[0])
        rows_above = torch.zeros(source.rows, dtype=torch.int64, device=device)
        rows_above[truth.in_index.long()] = truth.out_index.long()
        assert torch.equal(built.inverse[: source.rows], rows_above)


def bare(grid: VoxelGrid, keys: Tensor) -> VoxelGrid:
    return replace(grid, keys=keys, inverse=None)


def levels_and_sites(grid: VoxelGrid) -> list[Tensor]:
    alone, k3s2 = VoxelGrid(grid.keys, grid.batch_size, grid.bound, downsampling="reached"), FEW[3]
    reached = [reached_sites(alone, k3s2, fused=fused).keys for fused in (True, False)]
    coarse = output_sites(bare(grid, grid.keys), Kernel.of(2, 2))
    assert coarse.inverse is not None
    levels = unique_sites(
        grid.keys, extent_of(grid.keys, grid.key_format), STRIDES, grid.key_format
    )
    numbers = levels.counts.tolist()
    cut = [t[i, :n] for i, n in enumerate(numbers) for t in (levels.keys, levels.first)]
    return [*reached, coarse.keys, coarse.inverse, *cut, levels.inverse, levels.counts]


def test_nothing_is_written_beside_the_levels(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = surface_grid(size(device), 3).to(device)
    with guarded(monkeypatch):
        runs = [levels_and_sites(grid) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)
        assert (one != POISON).all()


@pytest.mark.gpu
def test_levels_follow_a_late_producer_on_another_stream() -> None:
    grid = surface_grid(100_000, batch_size=2).to("cuda")
    wanted = levels_and_sites(grid)  # compiles
    late = torch.zeros_like(grid.keys)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # some 0.1 s
        late.copy_(grid.keys)
        found = levels_and_sites(bare(grid, late))
    side.synchronize()
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)

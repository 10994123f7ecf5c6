"""Maps by device kernels at the size of scans; the same tests run small through the emulator.

Memory that was not written is poisoned (tests/conftest.py), so equality also says that all is
written.
"""

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid, grid_of_cells
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.maps import DoubleTraversed, MapBuilder, SortedSearch, Windowed
from pcnn.maps.disjoint import DisjointMap, disjoint_maps
from pcnn.maps.levels import extent_of, pack_cells, unique_sites
from pcnn.maps.reached_sites import reached_sites
from pcnn.maps.window_search import Search, SearchShape, Sites, search_windows
from pcnn.ops.sites import output_sites
from tests.clouds import surface, surface_grid
from tests.engines import KERNEL_BUILDERS
from tests.maps.guarded import POISON, guarded
from tests.maps.test_search import SETTINGS
from tests.waits import nothing_waits

KERNELS = [
    *(Kernel.of(size) for size in range(2, 8)),
    Kernel.of(3, dilation=2),
    Kernel.of(3, dilation=(1, 3, 2)),
    Kernel.of(2, dilation=2, padding=1),
    Kernel.of((3, 1, 5)),
    Kernel.of((1, 1, 9)),
    Kernel.of((9, 2, 1)),
    Kernel.of(2, 2),
    Kernel.of(3, 2),
    Kernel.of(3, 3, padding=1),
    Kernel.of(4, 2, padding=1),
    Kernel.of(5, 3, dilation=2),
    Kernel.of(6, 3),
    Kernel.of(7, 2),
    Kernel.of((3, 2, 1), (3, 1, 2), (1, 2, 3), (0, 1, 0)),
]
FEW = [Kernel.of(3), Kernel.of(5), Kernel.of(2, 2), Kernel.of(3, 2)]
#: A sort of all levels; more tasks of tiling maps than a launch takes come of them.
STRIDES = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 2, 1), (4, 4, 4), (6, 6, 6), (2, 4, 2), (8, 8, 8)]


def size(device: torch.device) -> int:
    return 100_000 if device.type == "cuda" else 100


def scene(device: torch.device, batch_size: int = 3, seed: int = 0) -> VoxelGrid:
    return surface_grid(size(device), batch_size, seed).to(device)


def far_scene(device: torch.device) -> VoxelGrid:
    """Clouds in several corners of what a key holds."""
    n, far = size(device), 120_000
    centres = [[-far] * 3, [far, -far, 5], [0, 0, 0], [7, far, -far]]
    batch = torch.arange(n) % len(centres)
    return grid_of_cells(surface(n) + torch.tensor(centres)[batch], batch, 4).to(device)


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


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("make", [scene, far_scene], ids=["near", "far"])
def test_windowed_maps_equal_those_of_the_sorted_search(
    device: torch.device, make: Callable[[torch.device], VoxelGrid], kernel: Kernel
) -> None:
    grid = make(device)
    target = grid.strided(kernel)
    truth = SortedSearch().build(grid, target, kernel)
    check(Windowed().build(grid, target, kernel), truth)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "builder",
    [*KERNEL_BUILDERS, *SETTINGS, DoubleTraversed(source_block=1024, query_block=2048)],
    ids=str,
)
def test_builders_equal_the_sorted_search(builder: MapBuilder) -> None:
    """Those that write a table do not wait for the device."""
    waits = getattr(builder, "product", "table") != "table"
    grid = surface_grid(100_000, batch_size=2).to("cuda")
    for kernel in (*FEW, Kernel.of(7)):
        target = grid.strided(kernel)
        builder.build(grid, target, kernel)  # compiles
        with nullcontext() if waits else nothing_waits():
            built = builder.build(grid, target, kernel)
        check(built, SortedSearch().build(grid, target, kernel))


@pytest.mark.parametrize("kernel", FEW, ids=str)
def test_windowed_maps_of_deeper_levels_and_given_sites(
    device: torch.device, kernel: Kernel
) -> None:
    coarse = scene(device).strided(Kernel.of(2, (2, 4, 1)))
    other = scene(device, seed=7).strided(Kernel.of(2, (2, 4, 1)))
    for target in (coarse.strided(kernel), other.strided(kernel)):
        truth = SortedSearch().build(coarse, target, kernel)
        check(Windowed().build(coarse, target, kernel), truth)


def test_many_windowed_maps_in_one_call(device: torch.device) -> None:
    grid = scene(device)
    cases = [(grid, grid.strided(kernel), kernel) for kernel in KERNELS]
    searches = []
    for source, target, kernel in cases:  # more than a launch takes
        shape = SearchShape.of(kernel, source.tensor_stride, source.key_format)
        counts = torch.zeros(kernel.volume, dtype=torch.int32, device=device)
        sites = Sites(source.keys, source.rows), Sites(target.keys, target.rows)
        searches.append(Search.allocate(*sites, shape, counts))
    search_windows(searches)
    for search, (source, target, kernel) in zip(searches, cases, strict=True):
        truth = SortedSearch().build(source, target, kernel)
        for name, mine in (("table", search.table), ("masks", search.masks)):
            assert torch.equal(mine, truth.layout(name)[0]), (name, kernel)
        assert torch.equal(search.counts.long(), truth.layout("counts")[0])  # type: ignore[union-attr]


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


def everything(grid: VoxelGrid, builder: MapBuilder) -> list[Tensor]:
    """All that kernels make of a grid, what is defined of it."""
    tensors = []
    for kernel in FEW:
        target = grid.strided(kernel)
        built = builder.build(grid, target, kernel)
        for view in (built, built.transpose()):
            tensors += [tensor for layout in content(view).values() for tensor in layout]
    return tensors


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


@pytest.mark.parametrize("builder", KERNEL_BUILDERS, ids=str)
def test_nothing_is_written_beside_the_results(
    device: torch.device, builder: MapBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = scene(device)
    with guarded(monkeypatch):
        for tensor in (*everything(grid, builder), *levels_and_sites(grid)):
            assert (tensor != POISON).all()


@pytest.mark.gpu
@pytest.mark.parametrize("builder", KERNEL_BUILDERS, ids=str)
def test_two_runs_give_identical_bits(builder: MapBuilder) -> None:
    grid = scene(torch.device("cuda"))
    runs = [(*everything(grid, builder), *levels_and_sites(grid)) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("reversed_blocks")
@pytest.mark.parametrize("builder", KERNEL_BUILDERS, ids=str)
def test_blocks_may_run_in_descending_order(builder: MapBuilder) -> None:
    grid = surface_grid(250, batch_size=2)
    for kernel in FEW:
        target = grid.strided(kernel)
        truth = SortedSearch().build(grid, target, kernel)
        check(builder.build(grid, target, kernel), truth)


@pytest.mark.gpu
@pytest.mark.parametrize("builder", KERNEL_BUILDERS, ids=str)
def test_maps_follow_a_late_producer_on_another_stream(builder: MapBuilder) -> None:
    grid = surface_grid(100_000, batch_size=2).to("cuda")
    wanted = (*everything(grid, builder), *levels_and_sites(grid))  # compiles
    late = torch.zeros_like(grid.keys)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # some 0.1 s
        late.copy_(grid.keys)
        # targets by torch wait for the sites: the maps of the sites themselves come first
        first = builder.build(bare(grid, late), bare(grid, late), FEW[0])
        again = bare(grid, late)
        found = (*everything(again, builder), *levels_and_sites(again))
    side.synchronize()
    assert torch.equal(first.layout("table")[0], wanted[0])
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
def test_a_late_producer_is_not_waited_for() -> None:
    grid = surface_grid(100_000, batch_size=2).to("cuda")
    targets = {kernel: grid.strided(kernel) for kernel in FEW}

    def work(source: VoxelGrid) -> list[KernelMap]:
        maps = [Windowed().build(source, targets[kernel], kernel) for kernel in FEW]
        for built in maps:
            built.layout("tiles")
            built.transpose().layout("table")
            built.transpose().layout("tiles")
        extent = extent_of(source.keys, source.key_format)
        unique_sites(source.keys, extent, STRIDES, source.key_format)
        return maps

    wanted = work(grid)  # compiles
    late = torch.zeros_like(grid.keys)
    source = bare(grid, late)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with nothing_waits(), torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000_000)  # some 0.5 s
        late.copy_(grid.keys)
        maps = work(source)
        waited = side.query()
    side.synchronize()
    assert not waited
    for one, other in zip(maps, wanted, strict=True):
        assert torch.equal(one.layout("table")[0], other.layout("table")[0])
        for a, b in zip(used(one.layout("tiles")), used(other.layout("tiles")), strict=True):
            assert torch.equal(a, b)

"""Promises of all searches, compared with the oracle; and the sites that are hard for some."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, KeyFormat, VoxelGrid, grid_of_cells
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.maps import (
    BinarySearch,
    DoubleTraversed,
    HashTable,
    MapBuilder,
    SortedSearch,
    Windowed,
    ZDelta,
    conformance,
    hash_table,
)
from pcnn.maps.table_to_pairs import table_from_pairs
from pcnn.maps.window_search import Search, SearchShape, Sites
from tests import oracle
from tests.clouds import dense_grid, surface, surface_grid
from tests.engines import BUILDERS, KERNEL_BUILDERS
from tests.maps.guarded import POISON, guarded
from tests.waits import nothing_waits

Cell = tuple[int, ...]
Cells = tuple[Cell, ...]
Searched = tuple[VoxelGrid, VoxelGrid, Kernel]

#: Kernels that differ in parity, in their axes, in what they tile and in what they leave out.
KERNELS = (
    *conformance.KERNELS,
    Kernel.of((3, 1, 5)),
    Kernel.of((1, 1, 9)),
    Kernel.of(4, 3),
    Kernel.of((3, 2, 1), (3, 1, 2), (1, 2, 3), (0, 1, 0)),
)
FEW = (Kernel.of(3), Kernel.of(2, 2), Kernel.of(3, 2))

UNROLLED = (*FEW, Kernel.of(3, dilation=(1, 3, 2)), Kernel.of(2, dilation=2, padding=1))

#: Settings that no engine takes.
SETTINGS: list[MapBuilder] = [
    HashTable(search="grid", symmetry=False),
    HashTable(search="hash", simplified=False, symmetry=False),
    ZDelta(product="pairs", half=False),
]
EVERY = [*BUILDERS, *SETTINGS]
every_builder = pytest.mark.parametrize("builder", EVERY, ids=str)


@pytest.fixture(autouse=True)
def kernels(request: pytest.FixtureRequest) -> None:
    """Device kernels serve the CPU, for the builders made of them."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if params.get("builder") in [*KERNEL_BUILDERS, *SETTINGS]:
        request.getfixturevalue("emulated")


@cache  # every builder is asked for the same maps
def expected(source: Cells, target: Cells, kernel: Kernel, stride: Triple) -> list[Cell]:
    """(slot, output, input) in the promised order, by the definition."""
    relation = (kernel.size, kernel.stride, kernel.dilation, kernel.padding)
    return sorted((k, i, j) for i, j, k in oracle.triplets(source, target, *relation, stride))


def wanted_of(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> list[Cell]:
    cells = (tuple(map(tuple, grid.coords.tolist())) for grid in (source, target))
    return expected(*cells, kernel, source.tensor_stride)


def listed(kernel_map: KernelMap) -> list[Cell]:
    columns = (kernel_map.slot_index, kernel_map.out_index, kernel_map.in_index)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def check(builder: MapBuilder, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
    built = builder.build(source, target, kernel)
    built.validate()
    assert listed(built) == wanted_of(source, target, kernel)
    assert (built.n_in, built.n_out, built.volume) == (source.rows, target.rows, kernel.volume)
    assert built.symmetric == (kernel.is_symmetric and source is target)
    plain = KernelMap.from_pairs(*built.layout("pairs"), source.rows, target.rows)
    for name in ("table", "masks", "counts"):
        (found,), (truth,) = built.layout(name), plain.layout(name)
        assert found.dtype == truth.dtype
        assert torch.equal(found, truth), name
    return built


@every_builder
def test_triplets_equal_the_oracles(builder: MapBuilder) -> None:
    small = surface_grid(33, batch_size=3)
    # kernels of known size are compiled one by one
    for kernel in UNROLLED if getattr(builder, "simplified", False) else KERNELS:
        check(builder, small, small.strided(kernel), kernel)
    for n, kernel in itertools.product((0, 1, 2, 300), FEW):
        grid = surface_grid(n, batch_size=3)
        check(builder, grid, grid.strided(kernel), kernel)


@every_builder
def test_triplets_of_deeper_levels_and_other_sites(builder: MapBuilder) -> None:
    grid = surface_grid(400, batch_size=2).strided(Kernel.of(2, (3, 2, 6)))
    for kernel in FEW if getattr(builder, "simplified", False) else (*FEW, Kernel.of(2, (1, 1, 2))):
        check(builder, grid, grid.strided(kernel), kernel)
    reached = surface_grid(200, batch_size=2, downsampling="reached")
    for kernel in FEW[1:]:
        check(builder, reached, reached.strided(kernel), kernel)
    one, other, empty = surface_grid(200, seed=3), surface_grid(150, seed=4), surface_grid(0)
    check(builder, one, other, Kernel.of(3))
    # given sites that lack the parents of some inputs
    check(builder, one, other.strided(Kernel.of(2, 2)), Kernel.of(2, 2))
    check(builder, empty, one, Kernel.of(3))
    check(builder, one, empty, Kernel.of(3))


@every_builder
def test_clouds_do_not_see_each_other_at_the_packing_limit(builder: MapBuilder) -> None:
    limit = 131071 - 1
    cells = surface(200) % 3 + torch.tensor([limit - 2, -limit, 0])
    batch = torch.arange(200) % 4
    grid = grid_of_cells(cells, batch, 4)
    check(builder, grid, grid, Kernel.of(3))
    assert int(grid.coords[:, 1].max()) == limit


@every_builder
def test_transposed_maps(builder: MapBuilder) -> None:
    grid = surface_grid(120, batch_size=2)
    for kernel in FEW:
        built = builder.build(grid, grid.strided(kernel), kernel)
        view = built.transpose()
        edges, turned = (
            zip(*(index.tolist() for index in columns), strict=True)
            for columns in (
                (built.slot_index, built.out_index, built.in_index),
                (view.slot_index, view.in_index, view.out_index),
            )
        )
        assert sorted(edges) == sorted(turned)
        (table,) = view.layout("table")
        columns, rows = (table.t() >= 0).nonzero(as_tuple=True)
        assert columns.tolist() == view.slot_index.tolist()
        assert rows.tolist() == view.out_index.tolist()
        assert table[rows, columns].tolist() == view.in_index.tolist()


def onto(grid: VoxelGrid, *kernels: Kernel) -> Iterator[Searched]:
    """Maps onto the sites that kernels make of a grid."""
    return ((grid, grid.strided(kernel), kernel) for kernel in kernels)


def narrow_keys() -> Iterator[Searched]:
    for n in (0, 1, 33, 300):
        yield from onto(surface_grid(n), *FEW)


def between_two_wanted_ones() -> Iterator[Searched]:
    column = torch.zeros(60, 3, dtype=torch.int64)
    column[:, 2] = torch.arange(60) - 30
    kernels = Kernel.of((1, 1, 3), dilation=7), Kernel.of((1, 1, 4), 3, dilation=5)
    return onto(grid_of_cells(column, None, 1), *kernels)


def full_groups() -> Iterator[Searched]:
    # every cell of a cube: no group of neighbours along z has room left
    yield from onto(dense_grid(6, batch_size=2), Kernel.of(3))
    # one floor: every home is the same place of its group
    cells = torch.cartesian_prod(torch.arange(-8, 8), torch.arange(-8, 8), torch.tensor([3]))
    yield from onto(grid_of_cells(cells, None, 1), Kernel.of(3))


def another_key_format() -> Iterator[Searched]:
    layout = KeyFormat(3, (10, 12, 9))
    keys = layout.pack(surface_grid(200, batch_size=2).coords)
    return onto(VoxelGrid(keys, 2, 20, key_format=layout), Kernel.of(2, 2), Kernel.of(1, 2))


def shared_low_half() -> Iterator[Searched]:
    # an entry holds 32 bits of its key: sites 2^14 apart along y, or apart in x, agree in them
    steps = torch.arange(-8, 8) * (1 << 13)
    cells = torch.cartesian_prod(torch.arange(12), steps, torch.tensor([0, 1]))
    return onto(grid_of_cells(cells, None, 1), Kernel.of(3))


def clouds_and_blocks() -> Iterator[Searched]:
    kernels = Kernel.of(3), Kernel.of((3, 1, 5), dilation=(2, 1, 1)), Kernel.of(1), Kernel.of(3, 2)
    for n in (2, 120):
        yield from onto(surface_grid(n, batch_size=2), *kernels)


def skewed() -> Iterator[Searched]:
    # all queries but few fall to one source block, or one query to many source blocks
    dense = dense_grid(6)
    sparse = grid_of_cells(torch.tensor([[2, 3, 1], [2, 3, 4], [9, 9, 9]]), None, 1)
    kernel = Kernel.of((2, 3, 3))
    yield from ((sparse, dense, kernel), (dense, sparse, kernel))


def dense_and_empty_regions() -> Iterator[Searched]:
    sparse = torch.arange(-40, 0, 4)[:, None].expand(-1, 3)
    cells = torch.cat([dense_grid(5).coords[:, 1:], sparse])
    return onto(grid_of_cells(cells.long(), None, 1), Kernel.of(3))


def wall_and_line() -> Iterator[Searched]:
    # every second output lies in a dense wall, the next one in a thin line behind it
    wall = torch.cartesian_prod(torch.arange(2), torch.arange(70), torch.arange(6))
    line = torch.stack([torch.full((40,), 3), torch.arange(40), torch.zeros(40)], 1).long()
    for side, dilation in itertools.product((1, -1), (1, 3)):
        grid = grid_of_cells(side * torch.cat([wall, line]))
        sparse = grid_of_cells(side * torch.cat([wall[::97], line[::13]]))
        kernel = Kernel.of(3, dilation=dilation)
        yield from onto(grid, kernel, Kernel.of(5, dilation=dilation), Kernel.of(3, 2))
        yield from ((grid, sparse, kernel), (sparse, grid, kernel))


HASHES = [
    HashTable(search=search, simplified=simplified, symmetry=not simplified)
    for search, simplified in itertools.product(("hash", "grid"), (True, False))
]
BLOCKS = (4, 8), (8, 3), (16, 64), (256, 512), (4, 4), (2, 1), (32, 512), (4, 2)
BLOCKED = [
    DoubleTraversed("double_traversed", *blocks, symmetry=symmetry)
    for blocks in BLOCKS
    for symmetry in (False, True)
]
TILED = [
    ZDelta(product=product, rows=rows)
    for product, rows in itertools.product(("table", "pairs"), (32, 128, 1024))
]
NARROW: list[MapBuilder] = [ZDelta(key_bits=32), ZDelta(product="pairs", key_bits=32)]
#: Sites that a way to search finds hard, and the searches of that way.
HARD: list[tuple[list[MapBuilder], Callable[[], Iterator[Searched]]]] = [
    (NARROW, narrow_keys),
    ([*TILED], lambda: onto(surface_grid(500, batch_size=2), Kernel.of(3))),
    ([ZDelta()], between_two_wanted_ones),
    ([ZDelta(), ZDelta(half=True)], lambda: onto(surface_grid(60), Kernel.of(11))),
    ([ZDelta(product="pairs")], lambda: onto(surface_grid(10), Kernel.of((1, 1, 1001)))),
    # mask words and passes: more slots than a tile holds
    ([*HASHES], lambda: onto(surface_grid(40), Kernel.of(7), Kernel.of((9, 9, 5)))),
    ([*HASHES], full_groups),
    ([*HASHES], another_key_format),
    ([one for one in HASHES if one.search != "grid"], shared_low_half),
    ([*BLOCKED[:8]], clouds_and_blocks),
    (
        [DoubleTraversed(source_block=8, query_block=16, symmetry=half) for half in (False, True)],
        lambda: onto(surface_grid(40, batch_size=2), *map(Kernel.of, (4, (3, 4, 5), 7))),
    ),
    ([*BLOCKED[8:14:2]], skewed),
    ([*BLOCKED[4:6], *BLOCKED[14:]], dense_and_empty_regions),
    (
        [Windowed()],
        lambda: onto(surface_grid(70, batch_size=2), Kernel.of(9), Kernel.of((4, 30, 9))),
    ),
    ([Windowed()], wall_and_line),
]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("builder", "searched"),
    [(builder, searched) for builders, searched in HARD for builder in builders],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_hard_sites(builder: MapBuilder, searched: Callable[[], Iterator[Searched]]) -> None:
    for source, target, kernel in searched():
        check(builder, source, target, kernel)


def test_the_windowed_cases_take_several_passes() -> None:
    for kernel in (Kernel.of(9), Kernel.of((4, 30, 9))):
        shape = SearchShape.of(kernel, (1, 1, 1), DEFAULT_FORMAT)
        assert shape.sizes[-1] < shape.groups


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("before", [True, False])
def test_queries_beyond_every_key_find_nothing(before: bool) -> None:
    near, far = surface_grid(40), surface_grid(40)
    moved = far.keys + far.key_format.delta((1000, 0, 0)) * (-1 if before else 1)
    target = replace(far, keys=moved, bound=far.bound + 1000)
    builder = DoubleTraversed(source_block=8, query_block=8)
    (table,) = builder.build(near, target, Kernel.of(3)).layout("table")
    assert (table == -1).all()


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("builder", HASHES, ids=str)
def test_blocks_walk_over_the_rows(builder: HashTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_table, "SEARCH_WARPS", 8)
    hash_table._layer.cache_clear()
    grid = surface_grid(500, batch_size=2)
    check(builder, grid, grid, Kernel.of((3, 1, 3)))
    hash_table._layer.cache_clear()


def test_auto_takes_the_grid_within_its_budget() -> None:
    dense = VoxelGrid(dense_grid(8).keys, 1, 7)  # 15^3 cells by the bound, 512 sites
    assert HashTable(grid_bytes_per_site=27).search_of(dense) == "grid"
    assert HashTable(grid_bytes_per_site=26).search_of(dense) == "hash"
    boxed = VoxelGrid(dense.keys, 1, 7, box=((0, 0, 0), (7, 7, 7)))
    assert HashTable(grid_bytes_per_site=4).search_of(boxed) == "grid"
    assert HashTable(grid_bytes_per_site=4, grid_bytes=2047).search_of(boxed) == "hash"
    far = VoxelGrid(dense.keys, 1, 100_000)
    assert HashTable().search_of(far) == "hash"
    with pytest.raises(ValueError, match="over the limit grid_bytes=17179869184"):
        HashTable(search="grid").search_of(far)


@pytest.mark.usefixtures("emulated")
def test_a_grid_is_as_long_as_the_cloud_on_every_axis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = torch.cartesian_prod(torch.tensor([-1601, 3, 1599]), torch.arange(3), torch.arange(2))
    grid = grid_of_cells(cells, torch.arange(2).repeat(9))  # one cloud at each height
    for level in (grid, grid.strided(Kernel.of(3, 2))):
        assert level.extent[1][2] <= 1
        with guarded(monkeypatch):
            built = HashTable(search="grid").build(level, level, Kernel.of(3))
        wanted = SortedSearch().build(level, level, Kernel.of(3))
        assert torch.equal(built.layout("table")[0], wanted.layout("table")[0])
    scan = VoxelGrid(grid.keys, 2, 1601, box=((-1601, 0, 0), (1599, 2, 1)))
    with pytest.raises(ValueError, match="2 clouds of 3201 x 3 x 2 cells takes 153648 bytes"):
        HashTable(search="grid", grid_bytes=150_000).search_of(scan)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("low", [(0, 0, 0), (-4000, 5, 90), (-1990, -1990, -120)])
def test_keys_of_32_bits_at_their_limit(low: tuple[int, int, int]) -> None:
    # as long as 12 + 12 + 8 bits hold what a kernel of size 3 reaches
    sizes = torch.tensor([4094, 4094, 254])
    cells = surface(100) % 3
    cells[50:] += sizes - 3
    cells = torch.cat([cells, torch.zeros(1, 3).long(), sizes[None] - 1])
    grid = grid_of_cells(cells + torch.tensor(low))
    for half in (False, True):
        check(ZDelta(key_bits=32, half=half), grid, grid, Kernel.of(3))
    down = Kernel.of(2, 2)
    check(ZDelta(key_bits=32), grid, grid.strided(down), down)
    with pytest.raises(
        ValueError, match=r"takes 13 \+ 13 \+ 9 bits of x, y and z; use key_bits=64"
    ):
        ZDelta(key_bits=32).build(grid, grid, Kernel.of(5))
    check(ZDelta(key_bits="auto"), grid, grid, Kernel.of(5))


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(("threshold", "key_bits"), [(0, 64), (1, 32), (2, 64), (4, 32)])
def test_hybrid_maps_hold_every_triplet_once(threshold: int, key_bits: int) -> None:
    grid = surface_grid(150)
    for kernel in (Kernel.of(3), Kernel.of(3, 2), Kernel.of((3, 1, 2), dilation=2)):
        target = grid.strided(kernel)
        split = ZDelta(key_bits=key_bits).hybrid(grid, target, kernel, threshold)
        assert sorted(split.dense_slots + split.sparse_slots) == list(range(kernel.volume))
        norms = [sum(map(abs, offset)) for offset in kernel.offsets]
        assert all((norms[slot] < threshold) == (slot in split.dense_slots) for slot in range(6))
        found = [
            (slot, row, int(split.table[row, column]))
            for column, slot in enumerate(split.dense_slots)
            for row in range(target.rows)
            if split.table[row, column] != -1
        ]
        sparse = []
        for place, slot in enumerate(split.sparse_slots):
            part = slice(int(split.offsets[place]), int(split.offsets[place + 1]))
            rows, inputs = split.out_index[part].tolist(), split.in_index[part].tolist()
            sparse += [(slot, row, i) for row, i in zip(rows, inputs, strict=True)]
        assert sparse == sorted(sparse)
        assert sorted(found + sparse) == wanted_of(grid, target, kernel)
        assert (split.n_in, split.n_out) == (grid.rows, target.rows)


@pytest.mark.usefixtures("emulated")
def test_transposed_table_and_its_counts() -> None:
    grid = surface_grid(300, batch_size=2)
    kernel = Kernel.of(3)
    table, _, counts = ZDelta().table(grid, grid, kernel)
    for slots in (None, 13, 5):
        by_slot, tile_counts, rows = ZDelta().transposed(grid, grid, kernel, slots)
        wanted = table.t()[:slots]
        assert torch.equal(by_slot, wanted)
        chunks = [(part >= 0).sum(1) for part in wanted.split(rows, dim=1)]
        assert torch.equal(tile_counts.long(), torch.stack(chunks, dim=1))
        assert torch.equal(tile_counts.sum(1), counts[:slots])


@pytest.mark.usefixtures("emulated")
def test_binary_searches_of_more_slots_than_a_tile_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = surface_grid(40)
    kernel = Kernel.of((1, 2, 1001), padding=(0, 0, 500))
    with guarded(monkeypatch):
        kernel_map = BinarySearch().build(grid, grid, kernel)
        assert (kernel_map.layout("masks")[0] != POISON).all()
        assert listed(kernel_map) == wanted_of(grid, grid, kernel)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: ZDelta(product="list"), "product must be one of"),
    (lambda: ZDelta(key_bits=16), "key_bits must be 32, 64 or auto"),
    (lambda: ZDelta(rows=48), "power of two from 32 to 1024"),
    (lambda: HashTable(search="cuckoo"), "search"),
    (lambda: DoubleTraversed(source_block=24), "source_block"),
    (lambda: DoubleTraversed(source_block=8192), "source_block"),
    (lambda: DoubleTraversed(query_block=0), "query_block"),
    (lambda: built(ZDelta(key_bits=32), surface_grid(10, batch_size=2)), "one cloud.*holds 2"),
    (lambda: built(ZDelta(), surface_grid(10), Kernel.of((1, 1, 1001))), "too long for a table"),
    (lambda: built(Windowed(), surface_grid(10), Kernel.of((1, 1, 1001))), "too large"),
    (lambda: built(HashTable(), empty_grid(KeyFormat(1, (2, 31, 2))), Kernel.of(1)), "30 bits"),
    (
        lambda: built(DoubleTraversed("d", 16, 16), huge_grid(), Kernel.of(7)),
        "raise source_block and query_block",
    ),
    (lambda: allocated(1 << 31, 0), "32-bit number"),
    (lambda: allocated(0, 1 << 31), "over the budget"),
]


def built(builder: MapBuilder, grid: VoxelGrid, kernel: Kernel | None = None) -> KernelMap:
    return builder.build(grid, grid, kernel or Kernel.of(3))


def empty_grid(layout: KeyFormat) -> VoxelGrid:
    return VoxelGrid(torch.zeros(0, dtype=torch.int64), 1, 0, key_format=layout)


def huge_grid() -> VoxelGrid:
    return VoxelGrid(torch.empty(1 << 28, dtype=torch.int64, device="meta"), 1, 0)


def allocated(source: int, target: int) -> Search:
    key = torch.zeros(1, dtype=torch.int64)
    shape = SearchShape.of(Kernel.of(3), (1, 1, 1), DEFAULT_FORMAT)
    return Search.allocate(*(Sites(key.expand(n), n) for n in (source, target)), shape)


@pytest.mark.parametrize(("call", "word"), REFUSED, ids=[word for _, word in REFUSED])
def test_what_no_search_serves_is_refused(
    call: Callable[[], object], word: str, request: pytest.FixtureRequest
) -> None:
    if not word.startswith("raise"):  # of a grid without memory
        request.getfixturevalue("emulated")
    with pytest.raises(ValueError, match=word):
        call()


@pytest.mark.parametrize("search", [HashTable(), DoubleTraversed()], ids=str)
def test_kernels_need_a_device(search: MapBuilder) -> None:
    with pytest.raises(ValueError, match="CUDA"):
        built(search, surface_grid(9))


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [Kernel.of(3), Kernel.of(5), Kernel.of(3, 2), Kernel.of(2, 2)])
def test_hybrid_maps_on_a_gpu(kernel: Kernel) -> None:
    grid = surface_grid(100_000, batch_size=2).to("cuda")
    target = grid.strided(kernel)
    wanted = SortedSearch().build(grid, target, kernel)
    by_norm = ZDelta().hybrid(grid, target, kernel, 2)
    (table,) = wanted.layout("table")
    assert torch.equal(by_norm.table, table[:, list(by_norm.dense_slots)])
    assert torch.equal(
        table_from_pairs(by_norm.in_index, by_norm.out_index, by_norm.offsets, target.rows),
        table[:, list(by_norm.sparse_slots)],
    )


@pytest.mark.gpu
def test_offsets_are_waited_for_once() -> None:
    grid = surface_grid(20_000).to("cuda")
    ZDelta().transposed(grid, grid, Kernel.of(3))  # compiles
    kernel_map = ZDelta().build(grid, grid, Kernel.of(3))
    offsets = kernel_map.offsets
    with nothing_waits():
        assert kernel_map.layout("pairs")[2] is offsets
        kernel_map.transpose().layout("table")
        ZDelta().transposed(grid, grid, Kernel.of(3))


@pytest.mark.gpu
@pytest.mark.slow
def test_tables_of_more_than_two_to_the_31_entries() -> None:
    cells = torch.arange(260, device="cuda")
    cells = torch.cartesian_prod(cells, cells, cells[:96])  # 6.5 M sites, 343 slots: 8.9 GB
    grid = grid_of_cells(cells, torch.zeros(len(cells), dtype=torch.int64, device="cuda"), 1)
    kernel = Kernel.of(7)
    assert grid.rows * kernel.volume > 1 << 31
    rows = torch.arange(grid.rows, device="cuda")
    inside = torch.tensor([[260 - abs(x), 260 - abs(y), 96 - abs(z)] for x, y, z in kernel.offsets])
    by_slot, _, _ = ZDelta().transposed(grid, grid, kernel)
    assert torch.equal(by_slot[171].long(), rows)
    assert [int((column >= 0).sum()) for column in by_slot] == inside.prod(1).tolist()

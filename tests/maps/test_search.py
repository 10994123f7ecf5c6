"""All searches on random sites and kernels, compared with the oracle."""

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid, grid_of_cells
from pcnn.geometry.base import Builder
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import SENTINEL, delta
from pcnn.maps import DoubleTraversed, HashTable, SortedSearch, Windowed, ZDelta
from pcnn.maps.base import Relation, Sites, TableSearch, Task
from tests import oracle
from tests.clouds import dense_grid, surface, surface_grid
from tests.engines import BUILDERS, KERNEL_BUILDERS
from tests.kernels.emulator import EmulatedModule
from tests.maps.guarded import guarded
from tests.waits import nothing_waits

Cell = tuple[int, ...]
Searched = tuple[VoxelGrid, VoxelGrid, Kernel]

#: Settings that no engine takes.
SETTINGS: list[Builder] = [
    HashTable(search="grid", simplified=False, symmetry=False),
    HashTable(search="hash", simplified=False, symmetry=False),
    DoubleTraversed(source_block=4, query_block=2),
    DoubleTraversed(source_block=2, query_block=1),
    ZDelta(key_bits=32),
]
TOGETHER: list[TableSearch] = [
    Windowed(),
    ZDelta(),
    ZDelta("binary_search", deltas=False),
]
EVERY = [*BUILDERS, *SETTINGS]
every_builder = pytest.mark.parametrize("builder", EVERY, ids=str)

#: Kernels of few sizes, for those that compile each of them.
COMPILED = ((3, 3, 3), (2, 2, 2))


@pytest.fixture(autouse=True)
def kernels(request: pytest.FixtureRequest) -> None:
    """Device kernels serve the CPU, for the builders made of them."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if params.get("builder") in [*KERNEL_BUILDERS, *SETTINGS]:
        request.getfixturevalue("emulated")


def column() -> VoxelGrid:
    cells = torch.zeros(60, 3, dtype=torch.int64)
    cells[:, 2] = torch.arange(60) - 30
    return grid_of_cells(cells)


def floor() -> VoxelGrid:
    # every home in a hash table is the same place of its group
    return grid_of_cells(torch.cartesian_prod(torch.arange(9), torch.arange(9), torch.tensor([3])))


def shared_low_half() -> VoxelGrid:
    # an entry holds 32 bits of its key: sites 2^14 apart along y, or apart in x, agree in them
    steps = torch.arange(-4, 4) * (1 << 13)
    return grid_of_cells(torch.cartesian_prod(torch.arange(6), steps, torch.tensor([0, 1])))


def wall_and_line() -> VoxelGrid:
    # every second output of a strided kernel lies in a dense wall, the next one in a thin line
    wall = torch.cartesian_prod(torch.arange(2), torch.arange(30), torch.arange(6))
    line = torch.stack([torch.full((40,), 3), torch.arange(40), torch.zeros(40)], 1).long()
    sparse = torch.arange(-40, 0, 4)[:, None].expand(-1, 3)
    return grid_of_cells(torch.cat([wall, line, sparse]))


def at_the_limit() -> VoxelGrid:
    limit = 131071 - 1
    cells = surface(150) % 3 + torch.tensor([limit - 2, -limit, 0])
    return grid_of_cells(cells, torch.arange(150) % 4, 4)


#: Sites that are hard for some search.
CLOUDS: dict[str, Callable[[], VoxelGrid]] = {
    "empty": lambda: surface_grid(0, batch_size=2),
    "one": lambda: surface_grid(1),
    "surface": lambda: surface_grid(33, batch_size=3),
    "tiles": lambda: surface_grid(300, batch_size=2),
    "dense": lambda: dense_grid(5, batch_size=2),
    "deeper": lambda: surface_grid(400, batch_size=2).strided(Kernel.of(2, (3, 2, 6))),
    "reached": lambda: surface_grid(100, batch_size=2, downsampling="reached"),
    "column": column,
    "floor": floor,
    "shared_low_half": shared_low_half,
    "wall_and_line": wall_and_line,
    "at_the_limit": at_the_limit,
}


@cache
def cloud(name: str) -> VoxelGrid:
    return CLOUDS[name]()


def axes(draw: random.Random, *values: int) -> Triple:
    return draw.choice(values), draw.choice(values), draw.choice(values)


@cache  # every builder is asked for the same maps
def drawn(name: str, number: int, compiled: bool) -> Searched:
    """Sites of a cloud, target sites, and a kernel: submanifold, strided, tiling, given sites."""
    draw = random.Random(f"{name} {number} {compiled}")
    source = cloud(name)
    size = draw.choice(COMPILED) if compiled else axes(draw, 1, 2, 3, 3, 4, 5)
    kind = ("itself", "strided", "tiling", "given")[number % 4]
    if name == "at_the_limit":
        return source, source, Kernel.of(axes(draw, 1, 3) if number else 3)
    if kind == "tiling":
        kernel = Kernel.of(size, size)
    elif kind == "strided":
        padding = draw.choice([None, axes(draw, 0, 1)])
        kernel = Kernel.of(size, axes(draw, 1, 2, 3), axes(draw, 1, 1, 2), padding)
    else:
        kernel = Kernel.of(size, 1, axes(draw, 1, 2, 3))
    target = source.strided(kernel)
    if number == 7:  # beyond every key
        moved = target.keys + delta((150, 0, 0))
        target = replace(target, keys=moved, bound=target.bound + 150, box=None, inverse=None)
    elif kind == "given" and target.rows:
        kept = [draw.random() < 0.6 for _ in range(target.rows)]
        target = replace(target, keys=target.keys[torch.tensor(kept)], inverse=None)
    return source, target, kernel


@cache
def wanted_of(name: str, number: int, compiled: bool) -> list[Cell]:
    """(slot, output, input) in the promised order, by the definition."""
    return expected(*drawn(name, number, compiled))


def expected(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> list[Cell]:
    cells = (tuple(map(tuple, grid.coords.tolist())) for grid in (source, target))
    relation = (kernel.size, kernel.stride, kernel.dilation, kernel.padding)
    found = oracle.triplets(*cells, *relation, source.tensor_stride)
    return sorted((k, i, j) for i, j, k in found)


def listed(kernel_map: KernelMap) -> list[Cell]:
    columns = (kernel_map.slot_index, kernel_map.out_index, kernel_map.in_index)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def check(builder: Builder, searched: Searched, wanted: list[Cell]) -> None:
    source, target, kernel = searched
    built = builder.build(*searched)
    assert listed(built) == wanted
    assert (built.n_in, built.n_out, built.volume) == (source.rows, target.rows, kernel.volume)
    assert built.symmetric == (kernel.is_symmetric and source is target)
    plain = KernelMap.from_pairs(*built.layout("pairs"), source.rows, target.rows)
    for name in ("table", "masks", "counts"):
        (found,), (truth,) = built.layout(name), plain.layout(name)
        assert found.dtype == truth.dtype
        assert torch.equal(found, truth), name
        (found,), (truth,) = (one.transpose().layout(name) for one in (built, plain))
        assert torch.equal(found, truth), f"{name} transposed"


@every_builder
@pytest.mark.parametrize("name", CLOUDS)
def test_triplets_equal_the_oracles(
    builder: Builder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = getattr(builder, "simplified", False)
    narrow = getattr(builder, "key_bits", None) == 32
    wide = name in ("shared_low_half", "at_the_limit")
    if (narrow and cloud(name).batch_size > 1) or (wide and "grid" in str(builder)):
        pytest.skip("refused: several clouds, or a box of gigabytes")
    for number in range(7 if narrow else 8):
        monkeypatch.setattr(EmulatedModule, "descending", number in (1, 2))
        with guarded(monkeypatch) if builder in KERNEL_BUILDERS else nullcontext():
            given = name, number, compiled
            check(builder, drawn(*given), wanted_of(*given))


#: Kernels of more slots than a block holds at once.
LARGE: list[tuple[Builder, tuple[object, ...]]] = [
    (ZDelta(), (11,)),
    (ZDelta("binary_search", deltas=False), ((1, 3, 501),)),
    (HashTable(search="hash"), (7, (9, 9, 5))),
    (HashTable(search="grid", simplified=False), (7, (9, 9, 5))),
    (DoubleTraversed(source_block=8, query_block=16), (4, (3, 4, 5), 7)),
    (Windowed(), (9, (4, 30, 9))),
]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(("search", "sizes"), LARGE, ids=str)
def test_large_kernels(
    search: Builder, sizes: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = surface_grid(40, batch_size=2)
    for size in sizes:
        searched = grid, grid, Kernel.of(size)  # type: ignore[arg-type]
        with guarded(monkeypatch):
            check(search, searched, expected(*searched))


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("search", TOGETHER, ids=str)
@pytest.mark.parametrize("fixed", [False, True])
def test_many_maps_of_sites_that_the_device_counts(
    search: TableSearch, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [drawn(name, number, False) for name in CLOUDS for number in (0, 1, 3)]
    assert len(cases) > 2 * 16  # what a launch takes
    tasks: list[Task] = []
    with guarded(monkeypatch):
        for source, target, kernel in cases:
            ends = []
            for grid, spare in ((source, 5), (target, 70)):
                keys = torch.cat([grid.keys, torch.full((spare,), SENTINEL)])
                count = torch.tensor([grid.rows], dtype=torch.int32)
                ends.append(Sites(keys, len(keys), count, fixed))
            relation = Relation(kernel, source.tensor_stride)
            counts = torch.zeros(kernel.volume, dtype=torch.int32)
            tasks.append(Task.of(search, ends[0], ends[-1], relation, counts))
        search.search(tasks)
    for task, (source, target, kernel) in zip(tasks, cases, strict=True):
        truth = SortedSearch().build(source, target, kernel)
        written = {"table": task.table} | ({"masks": task.masks} if search.masks else {})
        for name, found in written.items():
            assert torch.equal(found[: target.rows], truth.layout(name)[0]), (name, kernel)
        assert torch.equal(task.counts.long(), truth.layout("counts")[0])  # type: ignore[union-attr]
        if fixed:
            assert (task.table[target.rows :] == -1).all()
            assert task.masks is None or (task.masks[target.rows :] == 0).all()


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("low", [(0, 0, 0), (-4000, 5, 90), (-1990, -1990, -120)])
def test_keys_of_32_bits_at_their_limit(low: Triple) -> None:
    # as long as 12 + 12 + 8 bits hold what a kernel of size 3 reaches
    sizes = torch.tensor([4094, 4094, 254])
    cells = surface(100) % 3
    cells[50:] += sizes - 3
    cells = torch.cat([cells, torch.zeros(1, 3).long(), sizes[None] - 1])
    grid = grid_of_cells(cells + torch.tensor(low))
    for kernel in (Kernel.of(3), Kernel.of(2, 2)):
        searched = grid, grid.strided(kernel), kernel
        check(ZDelta(key_bits=32), searched, expected(*searched))
    with pytest.raises(ValueError, match="key_bits=64"):
        ZDelta(key_bits=32).build(grid, grid, Kernel.of(5))


def built(builder: Builder, grid: VoxelGrid, kernel: Kernel | None = None) -> KernelMap:
    return builder.build(grid, grid, kernel or Kernel.of(3))


def keys(n: int, device: str = "cpu") -> VoxelGrid:
    return VoxelGrid(torch.empty(n, dtype=torch.int64, device=device), 1, 0)


def cube() -> Tensor:
    return dense_grid(2).keys


def allocated(*rows: int) -> Task:
    key = torch.zeros(1, dtype=torch.int64)
    relation = Relation(Kernel.of(3), (1, 1, 1))
    return Task.of(Windowed(), *(Sites(key.expand(n), n) for n in rows), relation)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: ZDelta(key_bits=16), "key_bits"),
    (lambda: ZDelta(key_bits=32, deltas=False), "deltas"),
    (lambda: HashTable(search="cuckoo"), "search"),
    (lambda: DoubleTraversed(source_block=24), "source_block"),
    (lambda: DoubleTraversed(source_block=8192), "source_block"),
    (lambda: DoubleTraversed(query_block=0), "query_block"),
    (lambda: built(ZDelta(key_bits=32), surface_grid(10, batch_size=2)), "key_bits"),
    (lambda: built(ZDelta(), surface_grid(10), Kernel.of((1, 1, 1001))), "1001"),
    (lambda: built(Windowed(), surface_grid(10), Kernel.of((1, 1, 1001))), "1001"),
    (
        lambda: built(DoubleTraversed("d", 16, 16), keys(1 << 28, device="meta"), Kernel.of(7)),
        "source_block and query_block",
    ),
    (lambda: allocated(1 << 31, 0), "32-bit"),
    (lambda: allocated(0, 1 << 31), "bytes"),
]


@pytest.mark.parametrize(("call", "word"), REFUSED, ids=[word for _, word in REFUSED])
def test_what_no_search_serves_is_refused(
    call: Callable[[], object], word: str, request: pytest.FixtureRequest
) -> None:
    if "source_block and" not in word:  # of a grid without memory
        request.getfixturevalue("emulated")
    with pytest.raises(ValueError, match=word):
        call()


@pytest.mark.parametrize("search", [HashTable(), DoubleTraversed()], ids=str)
def test_kernels_need_a_device(search: Builder) -> None:
    with pytest.raises(ValueError, match="CUDA"):
        built(search, surface_grid(9))


def alike(one: KernelMap, other: KernelMap) -> None:
    for view, wanted in ((one, other), (one.transpose(), other.transpose())):
        for name in ("table", "masks", "counts"):
            assert torch.equal(view.layout(name)[0], wanted.layout(name)[0]), name


@pytest.mark.gpu
@pytest.mark.parametrize("builder", [*KERNEL_BUILDERS, *SETTINGS], ids=str)
def test_scans_are_searched_without_a_wait_behind_a_late_producer(builder: Builder) -> None:
    grid = surface_grid(100_000, 1 if getattr(builder, "key_bits", 64) == 32 else 2).to("cuda")
    for kernel in (Kernel.of(3), Kernel.of(5), Kernel.of(2, 2), Kernel.of(3, 2)):
        target = grid.strided(kernel)
        wanted = SortedSearch().build(grid, target, kernel)
        alike(builder.build(grid, target, kernel), wanted)  # compiles
        late = replace(grid, keys=torch.zeros_like(grid.keys), inverse=None)
        side = torch.cuda.Stream()
        with nothing_waits(), torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)  # some 0.1 s
            late.keys.copy_(grid.keys)
            itself = late if target is grid else target
            found = builder.build(late, itself, kernel)
            again = builder.build(late, itself, kernel)
        side.synchronize()
        assert torch.equal(found.layout("table")[0], wanted.layout("table")[0])
        assert torch.equal(found.layout("table")[0], again.layout("table")[0])

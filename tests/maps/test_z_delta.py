import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, VoxelGrid, grid_of_cells
from pcnn.maps import SortedSearch
from pcnn.maps.table_to_pairs import table_from_pairs
from pcnn.maps.z_delta import BinarySearch, ZDelta
from tests.clouds import surface, surface_grid
from tests.maps.guarded import POISON, guarded
from tests.maps.test_builders import check, expected
from tests.waits import nothing_waits

pytestmark = pytest.mark.usefixtures("emulated")


def triplets_of(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> list[tuple[int, ...]]:
    """(slot, output, input) in the promised order."""
    cells = (tuple(map(tuple, grid.coords.tolist())) for grid in (source, target))
    return expected(*cells, kernel, source.tensor_stride)


def listed(kernel_map: KernelMap) -> list[tuple[int, ...]]:
    columns = (kernel_map.slot_index, kernel_map.out_index, kernel_map.in_index)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("rows", [32, 128, 1024])
def test_any_tile_size(rows: int) -> None:
    grid = surface_grid(500, batch_size=2)
    for product in ("table", "pairs"):
        check(ZDelta(product=product, rows=rows), grid, grid, Kernel.of(3))


def test_sites_between_two_wanted_ones_are_passed_over() -> None:
    column = torch.zeros(60, 3, dtype=torch.int64)
    column[:, 2] = torch.arange(60) - 30
    grid = grid_of_cells(column, torch.zeros(60, dtype=torch.int64), 1)
    for kernel in (Kernel.of((1, 1, 3), dilation=7), Kernel.of((1, 1, 4), 3, dilation=5)):
        check(ZDelta(), grid, grid.strided(kernel), kernel)


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


@pytest.mark.parametrize("half", [False, True])
def test_kernels_of_more_slots_than_a_tile_holds(half: bool) -> None:
    grid = surface_grid(60)
    check(ZDelta(half=half), grid, grid, Kernel.of(11))


def test_a_kernel_too_long_for_a_tile_is_refused() -> None:
    grid = surface_grid(10)
    with pytest.raises(ValueError, match="too long for a table"):
        ZDelta().build(grid, grid, Kernel.of((1, 1, 1001)))
    check(ZDelta(product="pairs"), grid, grid, Kernel.of((1, 1, 1001)))


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
        assert sorted(found + sparse) == triplets_of(grid, target, kernel)
        assert (split.n_in, split.n_out) == (grid.rows, target.rows)


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


def test_binary_searches_of_more_slots_than_a_tile_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = surface_grid(40)
    kernel = Kernel.of((1, 2, 1001), padding=(0, 0, 500))
    with guarded(monkeypatch):
        kernel_map = BinarySearch().build(grid, grid, kernel)
        assert (kernel_map.layout("masks")[0] != POISON).all()
        assert listed(kernel_map) == triplets_of(grid, grid, kernel)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(
        ValueError, match="product must be one of table, pairs, half_pairs, hybrid:<threshold>, got"
    ):
        ZDelta(product="list")
    with pytest.raises(ValueError, match="key_bits must be 32, 64 or auto"):
        ZDelta(key_bits=16)
    with pytest.raises(ValueError, match="power of two from 32 to 1024"):
        ZDelta(rows=48)
    grid = surface_grid(10, batch_size=2)
    with pytest.raises(ValueError, match=r"one cloud.*holds 2"):
        ZDelta(key_bits=32).build(grid, grid, Kernel.of(3))


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

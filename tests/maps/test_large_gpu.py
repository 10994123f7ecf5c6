"""Maps of millions of sites: linear cost, and no 32-bit number that overflows."""

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, VoxelGrid
from pcnn.geometry.base import Builder
from pcnn.geometry.layouts import Layout
from pcnn.geometry.packing import pack, unpack
from pcnn.maps import DoubleTraversed, HashTable, Windowed, ZDelta
from pcnn.maps.pairs import transposed_table

#: Builders that write a table: one of each way to search.
LARGE = [
    Windowed(),
    ZDelta(),
    DoubleTraversed(),
    *(HashTable(search=search) for search in ("hash", "grid")),
]


def block(side: int, clouds: int, device: str, share: float = 1.0) -> VoxelGrid:
    """Cubes of cells around the origin, a share of them filled, without the cost of a sort."""
    axis = torch.arange(side, device=device) - side // 2 + (1 << 17)
    batch = torch.arange(clouds, device=device) << 54
    plane = (axis[:, None] << 18) + axis
    keys = (batch[:, None, None, None] + (axis[:, None, None] << 36) + plane).view(-1)
    if share < 1:
        torch.manual_seed(0)
        keys = keys[torch.rand(len(keys), device=device) < share]
    return VoxelGrid(keys, clouds, side)


def column(grid: VoxelGrid, offset: tuple[int, int, int], rows: Tensor) -> Tensor:
    """Input row of one slot of some output rows, -1 where it is empty, by torch."""
    step = torch.tensor((0, *offset), device=rows.device)
    wanted = pack(unpack(grid.keys[rows]).long() + step)
    place = torch.searchsorted(grid.keys, wanted).clamp_(max=grid.rows - 1)
    return torch.where(grid.keys[place] == wanted, place, -1).to(torch.int32)


def rows_of_interest(n: int, device: torch.device) -> Tensor:
    some = torch.randint(0, n, (min(n, 20_000),), device=device)
    first = torch.arange(min(n, 2000), device=device)
    return torch.cat([first, n - 1 - first, some])


def check_rows(grid: VoxelGrid, table: Tensor, masks: Tensor, kernel: Kernel) -> None:
    rows = rows_of_interest(grid.rows, table.device)
    wanted = torch.stack([column(grid, offset, rows) for offset in kernel.offsets], 1)
    assert torch.equal(table[rows], wanted)
    for word, part in enumerate((wanted >= 0).split(31, dim=1)):
        bits = (part.long() << torch.arange(part.shape[1], device=rows.device)).sum(1)
        assert torch.equal(masks[rows, word].long(), bits)


def check_steps(layout: Layout, table: Tensor) -> None:
    (out, begin, end, slots, rows), n = layout, len(table)
    every = torch.arange(n, dtype=out.dtype, device=out.device)
    assert torch.equal(out.flatten().sort().values[-n:], every)
    assert int((out >= 0).sum()) == n
    assert ((end - begin).diff() <= 0).all()
    tiles = len(begin)
    for tile in {0, 1, tiles // 2, *range(max(0, tiles - 3), tiles)}:
        own = slice(int(begin[tile]), int(end[tile]))
        entries = torch.where(out[tile, :, None] >= 0, table[out[tile].clamp(min=0).long()], -1)
        (touched,) = (entries >= 0).any(0).nonzero(as_tuple=True)
        assert torch.equal(slots[own].long(), touched)
        assert torch.equal(rows[own], entries.t()[touched])


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("builder", LARGE, ids=str)
def test_a_table_of_more_than_two_to_the_31_entries(builder: Builder) -> None:
    grid = block(218, 2, "cuda", 0.88)  # 18.2 M sites of two clouds
    kernel = Kernel.of(5)
    assert grid.rows * kernel.volume > 1 << 31
    torch.cuda.reset_peak_memory_stats()
    built = builder.build(grid, grid, kernel)
    (table,), (masks,) = built.layout("table"), built.layout("masks")
    print(f"{grid.rows} sites, {torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most")
    check_rows(grid, table, masks, kernel)
    every = torch.arange(grid.rows, device="cuda")
    for slot in (0, 31, 62, 99, 124):  # whole columns
        assert torch.equal(table[:, slot], column(grid, kernel.offsets[slot], every))
    assert torch.equal(built.layout("counts")[0], (table >= 0).sum(0))
    if builder == Windowed():
        check_steps(built.layout("steps"), table)


@pytest.mark.gpu
@pytest.mark.slow
def test_more_than_two_to_the_31_triplets() -> None:
    side = 263  # 18.2 M sites, all neighbours there: 2.2e9 triplets, 18 GB beside a table of 9
    grid = block(side, 1, "cuda")
    kernel = Kernel.of(5)
    built = Windowed().build(grid, grid, kernel)
    (table,) = built.layout("table")
    in_index, out_index, offsets = built.layout("pairs")
    print(f"{int(offsets[-1])} triplets, {torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most")
    inside = [[side - abs(value) for value in offset] for offset in kernel.offsets]
    assert offsets.diff().tolist() == torch.tensor(inside).prod(1).tolist()
    assert int(offsets[-1]) == len(in_index) > 1 << 31
    for slot in (0, 62, 123, 124):
        part = slice(int(offsets[slot]), int(offsets[slot + 1]))
        (rows,) = (table[:, slot] >= 0).nonzero(as_tuple=True)
        assert torch.equal(out_index[part].long(), rows)
        assert torch.equal(in_index[part], table[rows, slot])
    del in_index, out_index
    # the table of the transposed map, as if nothing were known of the symmetry
    built.edges.layouts.clear()
    reversed_ = transposed_table(table, grid.rows)
    rows = rows_of_interest(grid.rows, table.device)
    assert torch.equal(reversed_[rows], table[rows].flip(1))

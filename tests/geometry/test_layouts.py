import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, block_layouts, layouts, slot_tiles
from pcnn.maps import SortedSearch
from tests.clouds import surface_grid, triplets_of

Edges = set[tuple[int, int, int]]


def make(n: int = 400, size: int = 3, stride: int = 1) -> KernelMap:
    grid = surface_grid(n, batch_size=2)
    kernel = Kernel.of(size, stride)
    return SortedSearch().build(grid, grid.strided(kernel), kernel)


CASES = [(300, 3, 1), (300, 2, 2), (300, 3, 2), (1, 3, 1), (0, 3, 1), (90, 5, 1)]


@pytest.mark.parametrize(("n", "size", "stride"), CASES)
@pytest.mark.parametrize("transposed", [False, True])
def test_every_layout_holds_the_same_triplets(
    n: int, size: int, stride: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_layouts, "BLOCK_ROWS", 37)
    kernel_map = make(n, size, stride)
    kernel_map.layout("blocks")  # so that the transposed one is the mirrored one where it can be
    kernel_map = kernel_map.transpose() if transposed else kernel_map
    kernel_map.validate()
    expected = set(triplets_of(kernel_map))
    assert len(expected) == kernel_map.triplets

    (table,) = kernel_map.layout("table")
    i, k = (table >= 0).nonzero(as_tuple=True)
    assert set(zip(i.tolist(), table[i, k].tolist(), k.tolist(), strict=True)) == expected
    (masks,) = kernel_map.layout("masks")
    for words, filled in zip(masks.tolist(), (table >= 0).tolist(), strict=True):
        slots = range(kernel_map.volume)
        assert [bool(words[k // 31] >> (k % 31) & 1) for k in slots] == filled

    in_index, slot_index, offsets = kernel_map.layout("rows_csr")
    rows = torch.repeat_interleave(torch.arange(kernel_map.n_out), offsets.diff())
    got = zip(rows.tolist(), in_index.tolist(), slot_index.tolist(), strict=True)
    assert set(got) == expected

    in_index, out_index, by_row, offsets, segments, shape = kernel_map.layout("blocks")
    got_edges: Edges = set()
    for block, slot, start, end in segments.tolist():
        out = out_index[start:end].tolist()
        assert all(row // 37 == block for row in out)
        got_edges |= {(a, b, slot) for a, b in zip(out, in_index[start:end].tolist(), strict=True)}
    assert got_edges == expected
    assert shape.tolist() == [kernel_map.volume, 37]
    for row in range(kernel_map.n_out):
        assert (out_index[by_row[offsets[row] : offsets[row + 1]]] == row).all()
    assert by_row.unique().numel() == kernel_map.triplets


@pytest.mark.parametrize(("n", "size", "stride"), CASES)
@pytest.mark.parametrize("transposed", [False, True])
def test_triplets_are_found_by_their_rows(n: int, size: int, stride: int, transposed: bool) -> None:
    kernel_map = make(n, size, stride)
    kernel_map = kernel_map.transpose() if transposed else kernel_map
    for name, index, rows in (
        ("by_out", kernel_map.out_index, kernel_map.n_out),
        ("by_in", kernel_map.in_index, kernel_map.n_in),
    ):
        position, slot, offsets = kernel_map.layout(name)
        assert (position.dtype, slot.dtype) == (torch.int32, torch.int16)
        assert position.long().sort().values.tolist() == list(range(kernel_map.triplets))
        assert slot.tolist() == kernel_map.slot_index[position.long()].tolist()
        owner = torch.repeat_interleave(torch.arange(rows), offsets.diff())
        assert index[position.long()].tolist() == owner.tolist()
        ascending = (slot.diff() >= 0) | (owner.diff() > 0)
        assert ascending.all()


@pytest.mark.parametrize(("n", "size", "stride"), CASES)
def test_only_a_slot_that_moves_nothing_is_the_identity(n: int, size: int, stride: int) -> None:
    kernel_map = make(n, size, stride)
    (slot,) = kernel_map.layout("identity_slot")[0].tolist()
    assert slot == (size**3 // 2 if kernel_map.symmetric else -1)
    if slot >= 0:
        start, end = kernel_map.offsets[slot : slot + 2].tolist()
        rows = list(range(kernel_map.n_out))
        assert kernel_map.in_index[start:end].tolist() == rows
        assert kernel_map.out_index[start:end].tolist() == rows


def test_sorting_by_gray_code_shortens_the_slot_lists() -> None:
    kernel_map = make(4000)
    occupied = kernel_map.layout("table")[0] >= 0
    unsorted = sum(int(rows.any(0).sum()) for rows in occupied.split(slot_tiles.TILE_ROWS))
    assert int(kernel_map.layout("tiles")[2].sum()) < 0.9 * unsorted


@pytest.mark.parametrize(("n", "size", "stride"), CASES)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_map_made_from_its_table_holds_the_same_triplets(
    n: int, size: int, stride: int, transposed: bool
) -> None:
    listed = make(n, size, stride)
    if transposed:
        listed = listed.transpose()
    (table,) = listed.layout("table")
    made = KernelMap.from_table(table, listed.n_in, symmetric=listed.symmetric)
    for one, other in ((listed, made), (listed.transpose(), made.transpose())):
        other.validate()
        assert (one.n_in, one.n_out, one.volume) == (other.n_in, other.n_out, other.volume)
        assert torch.equal(one.layout("counts")[0], other.layout("counts")[0])
        assert torch.equal(one.offsets, other.offsets)
        assert torch.equal(one.layout("table")[0], other.layout("table")[0])
        for mine, theirs in zip(one.layout("pairs"), other.layout("pairs"), strict=True):
            assert torch.equal(mine, theirs)


def test_a_table_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = KernelMap.from_pairs(
        torch.tensor([0, 1], dtype=torch.int32),
        torch.tensor([0, 0], dtype=torch.int32),
        torch.tensor([0, 2]),
        2,
        1,
        one_per_slot=False,
    )
    with pytest.raises(ValueError, match="several inputs"):
        shared.layout("table")
    monkeypatch.setattr(layouts, "TABLE_BUDGET_BYTES", 100)
    with pytest.raises(ValueError, match="use the layout pairs"):
        make().layout("table")
    with pytest.raises(ValueError, match="there are pairs, counts"):
        make().layout("tabel")


def test_a_map_that_lies_about_itself_is_found() -> None:
    int32 = {"dtype": torch.int32}
    index = torch.tensor([0, 1], **int32)
    both = torch.zeros(2, **int32)
    for bad, message in (
        (KernelMap.from_pairs(index, index, torch.tensor([0, 1]), 2, 2), "cover"),
        (KernelMap.from_pairs(index, index, torch.tensor([0, 3, 2]), 2, 2), "decrease"),
        (KernelMap.from_pairs(index, index, torch.tensor([0, 2]), 1, 2), "in_index leaves"),
        (KernelMap.from_pairs(index, both, torch.tensor([0, 2]), 2, 2), "out_index claims"),
    ):
        with pytest.raises(ValueError, match=message):
            bad.validate()

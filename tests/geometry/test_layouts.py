"""Every layout of a map holds the map's triplets, from both sides."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, block_layouts, layouts, slot_tiles
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.slot_subsets import split_slots, threshold_of
from pcnn.geometry.slot_tiles import table_of_tiles
from pcnn.maps import SortedSearch, Windowed
from tests.clouds import surface_grid, triplets_of

#: (output, input, slot), as `triplets_of` lists them.
Triplets = list[tuple[int, int, int]]


def make(kernel: Kernel | None = None, n: int = 400, transposed: bool = False) -> KernelMap:
    grid, kernel = surface_grid(n, batch_size=2), kernel or Kernel.of(3)
    found = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    return found.transpose() if transposed else found


CASES = [
    *((Kernel.of(3), n) for n in (300, 1, 0)),
    *((Kernel.of(size, 2), 300) for size in (2, 3)),
    *((kernel, 90) for kernel in (Kernel.of(5), Kernel.of((3, 1, 2)), Kernel.of(1))),
]
cases = pytest.mark.parametrize(("kernel", "n"), CASES, ids=str)
sides = pytest.mark.parametrize("transposed", [False, True])


def triplets(rows: Tensor, inputs: Tensor, slots: Tensor) -> Triplets:
    return list(zip(rows.tolist(), inputs.tolist(), slots.tolist(), strict=True))


def with_mirrored(found: Triplets, volume: int) -> Triplets:
    return found + [(j, i, volume - 1 - k) for i, j, k in found]


def of_table(view: KernelMap, table: Tensor | None = None) -> Triplets:
    table = view.layout("table")[0] if table is None else table
    rows, slots = (table >= 0).nonzero(as_tuple=True)
    return triplets(rows, table[rows, slots], slots)


def of_masks(view: KernelMap) -> Triplets:
    """Slots by the masks, inputs by the table."""
    (masks,), (table,) = view.layout("masks"), view.layout("table")
    slots = torch.arange(view.volume)
    filled = (masks[:, slots // 31] >> (slots % 31) & 1).bool()
    rows, columns = filled.nonzero(as_tuple=True)
    return triplets(rows, table[rows, columns], columns)


def of_rows(view: KernelMap) -> Triplets:
    inputs, slots, offsets = view.layout("rows_csr")
    rows = torch.repeat_interleave(torch.arange(view.n_out), offsets.diff())
    return triplets(rows, inputs, slots)


def of_blocks(view: KernelMap) -> Triplets:
    inputs, outputs, by_row, offsets, segments, shape = view.layout("blocks")
    found: Triplets = []
    for block, slot, start, end in segments.tolist():
        rows = outputs[start:end]
        assert (rows // 37 == block).all()
        found += triplets(rows, inputs[start:end], torch.full((end - start,), slot))
    assert shape.tolist() == [view.volume, 37]
    for row in range(view.n_out):
        assert (outputs[by_row[offsets[row] : offsets[row + 1]]] == row).all()
    assert by_row.unique().numel() == view.triplets
    return found


def of_places(name: str) -> Callable[[KernelMap], Triplets]:
    """By the places of a row's triplets among the pairs."""

    def read(view: KernelMap) -> Triplets:
        index, rows = view.out_index, view.n_out
        if name == "by_in":
            index, rows = view.in_index, view.n_in
        position, slot, offsets = view.layout(name)
        assert (position.dtype, slot.dtype) == (torch.int32, torch.int16)
        place = position.long()
        owner = torch.repeat_interleave(torch.arange(rows), offsets.diff())
        assert index[place].tolist() == owner.tolist()
        assert ((slot.diff() >= 0) | (owner.diff() > 0)).all()
        return triplets(view.out_index[place], view.in_index[place], slot)

    return read


def of_half(view: KernelMap) -> Triplets:
    inputs, outputs, counts = view.layout("half_pairs")
    found = triplets(outputs, inputs, torch.arange(len(counts)).repeat_interleave(counts))
    if not view.symmetric:
        return found
    assert len(counts) == view.volume // 2
    middle = [(row, row, view.volume // 2) for row in range(view.n_out)]
    return with_mirrored(found, view.volume) + middle


def of_hybrid(setting: str) -> Callable[[KernelMap], Triplets]:
    """Near slots are a table and far ones pairs."""

    def read(view: KernelMap) -> Triplets:
        table, dense, inputs, outputs, counts, sparse = view.layout(f"hybrid:{setting}")
        norms = view.layout("slot_norms")[0]
        threshold = threshold_of(setting, tuple(norms.tolist()))
        assert (norms[dense.long()] < threshold).all()
        assert (norms[sparse.long()] >= threshold).all()
        assert table.shape == (view.n_out, len(dense))
        found = triplets(outputs, inputs, sparse.repeat_interleave(counts))
        assert len(dense) + (1 + view.symmetric) * len(sparse) == view.volume
        if view.symmetric:
            found = with_mirrored(found, view.volume)
        rows, columns = (table >= 0).nonzero(as_tuple=True)
        return found + triplets(rows, table[rows, columns], dense[columns])

    return read


def of_tiles(name: str) -> Callable[[KernelMap], Triplets]:
    def read(view: KernelMap) -> Triplets:
        view.layout(name)
        return of_table(view, table_of_tiles(view))

    return read


READERS: dict[str, Callable[[KernelMap], Triplets]] = {
    "table": of_table,
    "masks": of_masks,
    "rows_csr": of_rows,
    "blocks": of_blocks,
    "by_out": of_places("by_out"),
    "by_in": of_places("by_in"),
    "half_pairs": of_half,
    **{f"hybrid:{setting}": of_hybrid(setting) for setting in ("1", "2", "9", "usual")},
    "tiles": of_tiles("tiles"),
    "section_tiles": of_tiles("section_tiles"),
}


@cases
@sides
@pytest.mark.parametrize("name", READERS)
def test_every_layout_holds_the_same_triplets(
    kernel: Kernel, n: int, transposed: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_layouts, "BLOCK_ROWS", 37)
    view = make(kernel, n, transposed)
    if transposed and name == "blocks":  # the mirrored one of the other side where it can be
        view.transpose().layout("blocks")
    view.validate()
    expected = sorted(triplets_of(view))
    assert len(expected) == view.triplets
    assert sorted(READERS[name](view)) == expected


@cases
def test_only_a_slot_that_moves_nothing_is_the_identity(kernel: Kernel, n: int) -> None:
    kernel_map = make(kernel, n)
    (slot,) = kernel_map.layout("identity_slot")[0].tolist()
    assert slot == (kernel_map.volume // 2 if kernel_map.symmetric else -1)
    if slot >= 0:
        start, end = kernel_map.offsets[slot : slot + 2].tolist()
        rows = list(range(kernel_map.n_out))
        assert kernel_map.in_index[start:end].tolist() == rows
        assert kernel_map.out_index[start:end].tolist() == rows


def test_sorting_by_gray_code_shortens_the_slot_lists() -> None:
    kernel_map = make(n=4000)
    occupied = kernel_map.layout("table")[0] >= 0
    unsorted = sum(int(rows.any(0).sum()) for rows in occupied.split(slot_tiles.TILE_ROWS))
    assert int(kernel_map.layout("tiles")[2].sum()) < 0.9 * unsorted


@cases
@sides
def test_a_map_made_from_its_table_holds_the_same_triplets(
    kernel: Kernel, n: int, transposed: bool
) -> None:
    listed = make(kernel, n, transposed)
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


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_every_layout_comes_back_on_both_sides(
    native: bool, side: bool, stride: int, request: pytest.FixtureRequest
) -> None:
    if native:
        request.getfixturevalue("emulated")
    grid, kernel = surface_grid(150), Kernel.of(3, stride)
    builder = Windowed() if native else SortedSearch()
    truth, view = (builder.build(grid, grid.strided(kernel), kernel) for _ in range(2))
    view.layout("table")
    (view.transpose() if side else view).layout("tiles")
    view.drop_tables()
    assert not view.has("table")
    left = dict(view.edges.layouts)
    for flipped in (False, True):
        for name in ("table", "masks", "counts", "offsets", "pairs"):
            view.edges.layouts.clear()
            view.edges.layouts.update(left)
            mine, wanted = (m.transpose() if flipped else m for m in (view, truth))
            for a, b in zip(mine.layout(name), wanted.layout(name), strict=True):
                assert torch.equal(a.long(), b.long()), (name, flipped)


def test_a_map_without_tiles_keeps_its_table() -> None:
    view = make(n=100)
    table = view.layout("table")
    view.drop_tables()
    assert view.layout("table") is table


def test_a_map_that_holds_nothing_says_so() -> None:
    empty = KernelMap(EdgeSet((3, 3), 27, (True, True), False))
    for name in ("pairs", "table", "masks", "counts", "tiles"):
        with pytest.raises(ValueError, match="neither pairs nor a table"):
            empty.layout(name)


def test_several_inputs_in_a_slot_are_all_listed() -> None:
    index = torch.tensor([0, 1, 0, 1], dtype=torch.int32)
    offsets = torch.tensor([0, 0, 4, 4])
    kernel_map = KernelMap.from_pairs(index, index.sort().values, offsets, 2, 2, False, False, True)
    assert len(kernel_map.layout("half_pairs")[2]) == 3


def test_a_threshold_splits_slots_by_norm() -> None:
    norms = Kernel.of(3).norms
    assert norms == tuple(abs(x) + abs(y) + abs(z) for x, y, z in Kernel.of(3).offsets)
    assert split_slots(norms, 0) == ((), tuple(range(27)))
    assert split_slots(norms, 1)[0] == (13,)
    assert len(split_slots(norms, 2)[0]) == 7
    assert split_slots(norms, 4) == (tuple(range(27)), ())
    wide, apart = Kernel.of(5), Kernel.of(3, dilation=3)
    assert [threshold_of("usual", one.norms) for one in (Kernel.of(3), wide, apart)] == [4, 1, 10]
    assert threshold_of("5", wide.norms) == 5


def test_what_cannot_be_is_said() -> None:
    grid = surface_grid(20)
    alone = SortedSearch().build(grid, grid, Kernel.of(3))
    with pytest.raises(ValueError, match="does not know the offsets of its slots"):
        alone.layout("hybrid:2")
    for name in ("hybrid", "hybrid:", "hybrid:near", "hybrid:-1", "half"):
        with pytest.raises(ValueError, match=r"unknown layout .*hybrid:<threshold>"):
            alone.layout(name)

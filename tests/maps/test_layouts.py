"""Every layout of a map holds its triplets, from both sides, by torch and by device kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, layouts, tile_steps
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.layouts import slot_norms, threshold_of
from pcnn.geometry.tile_steps import STEPS
from pcnn.maps import SortedSearch, pairs
from pcnn.maps.base import DEVICE_LAYOUTS
from tests.clouds import surface_grid, triplets_of
from tests.maps.guarded import guarded
from tests.random_maps import random_map
from tests.steps import check_steps

#: (output, input, slot), as `triplets_of` lists them.
Triplets = list[tuple[int, int, int]]

#: Maps with one input a slot: kernel, voxels.
SINGLE = [
    *((Kernel.of(3), n) for n in (300, 129, 128, 1, 0)),
    *((Kernel.of(size, 2), 300) for size in (2, 3)),
    *((Kernel.of(5), 90), (Kernel.of((3, 1, 2)), 90), (Kernel.of(1), 90)),
    *((Kernel.of(7), 40), (Kernel.of((1, 3, 31)), 70)),
]
#: Maps with several: inputs, outputs, slots, triplets, whether symmetric.
SEVERAL = [
    *((300, 300, 27, 2000, False), (70, 300, 125, 900, False), (5, 400, 8, 60, False)),
    *((40, 3, 343, 900, False), (200, 200, 27, 600, True), (9, 9, 1, 20, False)),
    *((0, 4, 8, 0, False), (1, 1, 3, 1, False)),
]
CASES = [*SINGLE, *SEVERAL]


def single(kernel: Kernel, n: int) -> KernelMap:
    grid = surface_grid(n, batch_size=2)
    return grid.map_to(grid.strided(kernel), kernel, SortedSearch())


def make(case: tuple[Any, ...]) -> KernelMap:
    return single(*case) if isinstance(case[0], Kernel) else random_map(*case)


def bare(built: KernelMap, kept: tuple[str, ...], device: torch.device | None = None) -> KernelMap:
    """The same map with some layouts alone; on a device, those of kernels."""
    edges = built.edges
    claims = edges.rows, edges.volume, edges.one_per_slot, edges.symmetric
    found = EdgeSet(*claims, {} if device is None else DEVICE_LAYOUTS, kernel=edges.kernel)
    for name in kept:
        layout = built.layout(name)
        moves = device is not None and name != "offsets"
        found.layouts[name, False] = tuple(t.to(device) if moves else t for t in layout)
    if device is not None and "pairs" in kept:
        *lists, offsets = found.layouts["pairs", False]
        found.layouts["pairs", False] = *lists, offsets.cpu()
    return KernelMap(found)


def triplets(rows: Tensor, inputs: Tensor, slots: Tensor) -> Triplets:
    return list(zip(rows.tolist(), inputs.tolist(), slots.tolist(), strict=True))


def with_mirrored(found: Triplets, volume: int) -> Triplets:
    return found + [(j, i, volume - 1 - k) for i, j, k in found]


def of_table(view: KernelMap, table: Tensor | None = None) -> Triplets:
    table = view.layout("table")[0] if table is None else table
    rows, slots = (table >= 0).nonzero(as_tuple=True)
    return triplets(rows, table[rows, slots], slots)


def of_pairs(view: KernelMap) -> Triplets:
    inputs, outputs, offsets = view.layout("pairs")
    assert not offsets.is_cuda
    for start, end in pairwise(offsets.tolist()):
        assert view.flipped or (outputs[start:end].diff() >= 0).all()
    return triplets(outputs, inputs, torch.arange(view.volume).repeat_interleave(offsets.diff()))


def of_masks(view: KernelMap) -> Triplets:
    """Slots by the masks, inputs by the table."""
    (masks,), (table,) = view.layout("masks"), view.layout("table")
    slots = torch.arange(view.volume, device=table.device)
    rows, columns = (masks[:, slots // 31] >> (slots % 31) & 1).bool().nonzero(as_tuple=True)
    return triplets(rows, table[rows, columns], columns)


def of_rows(view: KernelMap) -> Triplets:
    inputs, slots, offsets = view.layout("rows_csr")
    assert (inputs.dtype, slots.dtype, offsets.dtype) == (torch.int32, torch.int32, torch.int64)
    rows = torch.arange(view.n_out, device=offsets.device).repeat_interleave(offsets.diff())
    assert ((slots.diff() >= 0) | (rows.diff() > 0)).all()
    return triplets(rows, inputs, slots)


def of_blocks(view: KernelMap) -> Triplets:
    inputs, starts, outputs, by_row, offsets, segments, shape = view.layout("blocks")
    found: Triplets = []
    for block, slot, first, last in segments.tolist():
        assert (outputs[first:last] // shape[1] == block).all()
        for bag in range(first, last):
            own = inputs[starts[bag] : starts[bag + 1]].tolist()
            assert own
            found += [(int(outputs[bag]), j, slot) for j in own]
    owners = torch.arange(view.n_out).repeat_interleave(offsets.cpu().diff())
    assert outputs[by_row].tolist() == owners.tolist()
    return found


def of_places(name: str) -> Callable[[KernelMap], Triplets]:
    """By the places of a row's triplets among the pairs."""

    def read(view: KernelMap) -> Triplets:
        index, rows = view.out_index, view.n_out
        if name == "by_in":
            index, rows = view.in_index, view.n_in
        position, slot, offsets = view.layout(name)
        assert (position.dtype, slot.dtype) == (torch.int32, torch.int16)
        owner = torch.arange(rows, device=offsets.device).repeat_interleave(offsets.diff())
        assert index[position.long()].tolist() == owner.tolist()
        assert ((slot.diff() >= 0) | (owner.diff() > 0)).all()
        place = position.long()
        return triplets(view.out_index[place], view.in_index[place], slot)

    return read


def of_half(view: KernelMap) -> Triplets:
    inputs, outputs, counts = view.layout("half_pairs")
    slots = torch.arange(len(counts)).repeat_interleave(counts.cpu())
    found = triplets(outputs, inputs, slots)
    if not (view.symmetric and view.one_per_slot):
        return found
    middle = [(row, row, view.volume // 2) for row in range(view.n_out)]
    return with_mirrored(found, view.volume) + middle


def of_hybrid(setting: str) -> Callable[[KernelMap], Triplets]:
    """Near slots are a table and far ones pairs."""

    def read(view: KernelMap) -> Triplets:
        table, dense, inputs, outputs, counts, sparse = view.layout(f"hybrid:{setting}")
        norms = torch.tensor(slot_norms(view), device=table.device)
        threshold = threshold_of(setting, slot_norms(view))
        assert (norms[dense.long()] < threshold).all()
        assert (norms[sparse.long()] >= threshold).all()
        found = triplets(outputs, inputs, sparse.repeat_interleave(counts))
        if view.symmetric:
            found = with_mirrored(found, view.volume)
        rows, columns = (table >= 0).nonzero(as_tuple=True)
        return found + triplets(rows, table[rows, columns], dense[columns])

    return read


def of_steps(name: str) -> Callable[[KernelMap], Triplets]:
    return lambda view: check_steps(view, view.layout(name), name)


#: Layouts of maps with one input a slot, and those of all maps.
ONE: Mapping[str, Callable[[KernelMap], Triplets]] = {
    "table": of_table,
    "masks": of_masks,
    "half_pairs": of_half,
    **{f"hybrid:{setting}": of_hybrid(setting) for setting in ("1", "2", "9", "usual")},
}
ALL: Mapping[str, Callable[[KernelMap], Triplets]] = {
    "pairs": of_pairs,
    "rows_csr": of_rows,
    "blocks": of_blocks,
    **{name: of_places(name) for name in ("by_out", "by_in")},
    **{name: of_steps(name) for name in STEPS},
}


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("kept", ["pairs", "table"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_layout_holds_the_triplets_by_kernels(
    case: tuple[Any, ...],
    kept: str,
    order: str,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if order == "descending":
        if device.type == "cuda":
            pytest.skip("blocks of a device run in its own order")
        request.getfixturevalue("reversed_blocks")
    plain = make(case)
    if kept == "table" and not plain.one_per_slot:
        pytest.skip("no table")
    names = [*ALL, *(ONE if plain.one_per_slot else ())]
    for flipped in (False, True):
        wanted = sorted(triplets_of(plain.transpose() if flipped else plain))
        views = {name: bare(plain, (kept,), device) for name in names}
        if flipped:
            views = {name: view.transpose() for name, view in views.items()}
        if device.type == "cpu":
            with guarded(monkeypatch):
                for name in DEVICE_LAYOUTS.keys() & names:
                    views[name].layout(name)
        for name, view in views.items():
            assert sorted({**ALL, **ONE}[name](view)) == wanted, (name, flipped)
            for tensor in view.layout(name) if name in STEPS else ():
                assert tensor.data_ptr() % 16 == 0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_layout_holds_the_triplets_by_torch(
    case: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "BLOCK_ROWS", 37)
    plain = make(case)
    names = {**ALL, **(ONE if plain.one_per_slot else {})}
    for flipped in (False, True):
        for first in (False, True):  # what follows from the other side's, where it can
            wanted = sorted(triplets_of(plain.transpose() if flipped else plain))
            for name, read in names.items():
                view = bare(plain, ("table",) if plain.one_per_slot and first else ("pairs",))
                view = view.transpose() if flipped else view
                if first:
                    view.transpose().layout(name)
                assert len(wanted) == view.triplets
                assert sorted(read(view)) == wanted, (name, flipped)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("size", [32, 64, 1024])
def test_chunks_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "chunk_rows", lambda rows: size)
    for kernel in (Kernel.of(3), Kernel.of((1, 3, 45))):
        plain = single(kernel, 500)
        view = bare(plain, ("table",), torch.device("cpu"))
        for name in ("pairs", "by_out", "by_in"):
            assert sorted(ALL[name](view)) == sorted(triplets_of(plain))


def several_inputs() -> KernelMap:
    index, offsets = torch.zeros(9, dtype=torch.int32), torch.tensor([0, 9])
    return KernelMap.from_pairs(index, index, offsets, 1, 1, one_per_slot=False)


def alone() -> KernelMap:
    grid = surface_grid(20)
    return SortedSearch().build(grid, grid, Kernel.of(3))


def empty() -> KernelMap:
    return KernelMap(EdgeSet((3, 3), 27, (True, True), False))


#: A map, the layout asked for, limits set before, and a word of the refusal.
REFUSALS: list[tuple[Callable[[], KernelMap], str, dict[str, int], str]] = [
    (several_inputs, "table", {}, "several inputs"),
    (several_inputs, "steps", {"MOST_TRIPLETS": 8}, "9 triplets"),
    (several_inputs, "steps", {"TABLE_BUDGET_BYTES": 7}, "budget of 7"),
    (alone, "table", {"TABLE_BUDGET_BYTES": 100}, "budget of 100"),
    (alone, "hybrid:2", {}, "offsets of its slots"),
    *((alone, name, {}, "unknown layout") for name in ("tabel", "hybrid", "hybrid:near", "half")),
    *((empty, name, {}, "neither") for name in ("pairs", "table", "masks", "counts", "steps")),
]


@pytest.mark.parametrize(("made", "name", "limits", "word"), REFUSALS)
def test_what_cannot_be_is_refused(
    made: Callable[[], KernelMap],
    name: str,
    limits: dict[str, int],
    word: str,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit, value in limits.items():
        monkeypatch.setattr(tile_steps, limit, value)
    view = made()
    if where == "emulated":
        view.edges.derive = DEVICE_LAYOUTS
    with pytest.raises(ValueError, match=word):
        view.layout(name)

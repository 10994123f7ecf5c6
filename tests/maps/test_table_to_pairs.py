import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import SortedSearch, table_to_pairs
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from pcnn.maps.table_to_pairs import (
    pairs_from_table,
    scan_counts,
    table_from_pairs,
    transposed_table,
)
from tests.clouds import surface_grid
from tests.maps.guarded import POISON, guarded

pytestmark = pytest.mark.usefixtures("emulated")

SHAPES = [(0, 27), (1, 1), (2, 8), (33, 27), (1000, 27), (300, 125), (40, 343), (70, 130)]


def random_table(rows: int, volume: int, n_in: int, density: float = 0.2) -> Tensor:
    """A table in which every input fills a slot at most once."""
    columns = [torch.randperm(n_in)[:rows] for _ in range(volume)]
    table = torch.stack(columns, dim=1).to(torch.int32)
    return table.masked_fill_(torch.rand(rows, volume) > density, -1)


def expected(table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    slots, rows = (table.t() >= 0).nonzero(as_tuple=True)
    ends = (table >= 0).sum(0).cumsum(0)
    return (
        table[rows, slots],
        rows.to(torch.int32),
        torch.cat([torch.zeros(1, dtype=torch.int64), ends]),
    )


def same(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> bool:
    return all(
        one.dtype == other.dtype and torch.equal(one, other)
        for one, other in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize(("rows", "volume"), SHAPES)
def test_pairs_of_a_table_and_back(monkeypatch: pytest.MonkeyPatch, rows: int, volume: int) -> None:
    density = {300: 1.0, 40: 0.0}.get(rows, 0.2)
    table = random_table(rows, volume, rows + 10, density)
    wanted = expected(table)
    with guarded(monkeypatch):
        assert same(pairs_from_table(table), wanted)
        assert same(pairs_from_table(table, wanted[2]), wanted)
        back = table_from_pairs(*wanted, rows)
        assert torch.equal(back, table)
    assert pairs_from_table(table, wanted[2])[2] is wanted[2]


@pytest.mark.parametrize("size", [64, 1024])
def test_any_chunk_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(table_to_pairs, "chunk_rows", lambda rows: size)
    for volume in (27, 8, 140):
        table = random_table(500, volume, 600)
        assert same(pairs_from_table(table), expected(table))


def test_scan_of_more_chunks_than_a_round_takes() -> None:
    counts = torch.randint(0, 1000, (3, 2501), dtype=torch.int32)
    starts = torch.full_like(counts, POISON)
    offsets = torch.full((4,), POISON)
    scan_counts(counts, starts, offsets)
    assert torch.equal(starts, counts.cumsum(1, dtype=torch.int32) - counts)
    assert offsets.tolist() == [0, *counts.sum(1).cumsum(0).tolist()]


@pytest.mark.parametrize(("rows", "volume"), SHAPES)
def test_table_of_the_transposed_map(
    monkeypatch: pytest.MonkeyPatch, rows: int, volume: int
) -> None:
    n_in = rows + 7
    table = random_table(rows, volume, n_in)
    with guarded(monkeypatch):
        found = transposed_table(table, n_in)
    wanted = torch.full((n_in, volume), -1, dtype=torch.int32)
    inputs, outputs, offsets = expected(table)
    slots = torch.repeat_interleave(torch.arange(volume), offsets.diff())
    wanted[inputs.long(), slots] = outputs
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("kernel", [Kernel.of(3), Kernel.of(3, 2)], ids=str)
@pytest.mark.parametrize("start", ["table", "pairs"])
def test_layouts_of_a_map(kernel: Kernel, start: str) -> None:
    grid = surface_grid(150, batch_size=2)
    target = grid.strided(kernel)
    plain = SortedSearch().build(grid, target, kernel)

    def native() -> KernelMap:
        if start == "table":
            (table,) = plain.layout("table")
            return KernelMap.from_table(
                table, grid.rows, symmetric=plain.symmetric, derive=DEVICE_LAYOUTS
            )
        pairs = plain.layout("pairs")
        return KernelMap.from_pairs(
            *pairs, grid.rows, target.rows, symmetric=plain.symmetric, derive=DEVICE_LAYOUTS
        )

    for name in ("pairs", "table"):
        for flipped in (False, True):
            found, wanted = native(), plain
            if flipped:
                found, wanted = found.transpose(), wanted.transpose()
            assert same(found.layout(name), wanted.layout(name)), (name, flipped)
            assert same(found.transpose().layout(name), wanted.transpose().layout(name))


def test_known_offsets_are_not_counted_again() -> None:
    grid = surface_grid(100)
    plain = SortedSearch().build(grid, grid, Kernel.of(3))
    found = KernelMap.from_table(plain.layout("table")[0], grid.rows, derive=DEVICE_LAYOUTS)
    offsets = plain.offsets
    found.edges.layouts["offsets", False] = (offsets,)
    assert found.layout("pairs")[2] is offsets

"""Sites of levels, by a sort, from bitmaps and as inputs reach them: those that torch finds."""

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, VoxelGrid, grid_of_cells
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import SENTINEL, pack, unpack
from pcnn.maps.cell_bits import CellBits, bitmap_words
from pcnn.maps.levels import Levels, box_of, check_overflow, pack_cells, unique_sites
from pcnn.maps.radix_sort import RadixSort
from pcnn.ops.sites import reached_sites
from tests.clouds import surface, surface_grid
from tests.kernels.emulator import EmulatedModule
from tests.maps.guarded import POISON, guarded

LIMIT = 1 << 17


@dataclass(frozen=True)
class Case:
    """Cells in any order, of which the first count, and strides of levels."""

    cells: Tensor  # [N, 4] int32
    count: int
    strides: list[Triple]

    @property
    def keys(self) -> Tensor:
        return pack(self.cells[: self.count])

    def sites(self, stride: Triple) -> tuple[Tensor, Tensor]:
        """Sorted sites of a level, and the site of every cell."""
        step = torch.tensor((1, *stride), device=self.cells.device)
        coarse = torch.div(self.cells[: self.count].long(), step, rounding_mode="floor") * step
        return torch.unique(pack(coarse), sorted=True, return_inverse=True)


def drawn(number: int, device: torch.device) -> Case:
    draw = random.Random(number)
    sizes = (0, 1, 33, 700, 3000, 6000) if device.type == "cpu" else (100_000,)
    n, clouds = sizes[number % len(sizes)], draw.choice((1, 3))
    cells = surface(n, seed=number) if draw.random() < 0.7 else surface(n) % 4
    generator = torch.Generator().manual_seed(number)
    batch = torch.randint(0, clouds, (n, 1), generator=generator)
    if n and draw.random() < 0.3:
        cells = cells % 50 + torch.tensor([LIMIT - 50, 16 - LIMIT, 0])
    strides: list[Triple] = [(1, 1, 1), (2, 2, 2), (4, 4, 4), (4, 2, 1), (3, 3, 3), (16, 16, 16)]
    strides = sorted(draw.sample(strides, draw.randint(1, 6)))
    count = n if draw.random() < 0.5 else 2 * n // 3
    whole = torch.cat([batch, cells], 1).to(device, torch.int32)
    return Case(whole, count, strides)


def on_device(number: int, device: torch.device) -> Tensor:
    return torch.tensor([number], dtype=torch.int32, device=device)


def check(found: Levels, case: Case, rooms: Sequence[int] | None) -> None:
    for level, stride in enumerate(case.strides):
        sites, inverse = case.sites(stride)
        many = len(sites)
        assert int(found.counts[level]) == many
        assert torch.equal(found.keys[level, :many], sites)
        if rooms is not None:  # no row leads beyond the room, and spare keys lie behind all
            inverse = inverse.clamp(max=rooms[level] - 1)
            assert (found.keys[level, many:] == SENTINEL).all()
        assert torch.equal(found.inverse[level, : case.count].long(), inverse)
        first = found.first[level, :many].long()
        rows = torch.arange(many, device=sites.device)
        if rooms is not None:
            rows = rows.clamp(max=rooms[level] - 1)
        assert torch.equal(inverse[first], rows)


@pytest.mark.parametrize("number", range(24))
@pytest.mark.parametrize("way", ["sort", "sort in rooms", "bits"])
def test_every_level_holds_the_floor_of_every_cell(
    device: torch.device, way: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmulatedModule, "descending", number % 2 == 1)
    case = drawn(number, device)
    keys, extent = pack_cells(case.cells)
    assert torch.equal(keys[: case.count], case.keys)
    _, extent = pack_cells(keys[: case.count].clone())
    rooms = None if way == "sort" else [max(1, len(case.cells) // 2 + 3)] * len(case.strides)
    count = on_device(case.count, device)
    with guarded(monkeypatch):
        given = keys, extent, case.strides, count
        if way != "bits":
            check(unique_sites(*given, rooms=rooms), case, rooms)
            return
        # of rows in order, as those of a level are; a word too few finds nothing
        ordered = case.keys.unique()
        case = Case(unpack(ordered), len(ordered), case.strides)
        words = bitmap_words(box_of(extent.tolist()), 3, case.strides)
        for short in (0, 1):
            bits = CellBits.of(max(words, 4096) - 4096 * short, device)
            bits.marks.zero_()
            report = torch.zeros(len(case.strides) + 1, dtype=torch.int32, device=device)
            counts, needed = report[:-1], report[-1:]
            count, sizes = on_device(case.count, device), (3, rooms, counts, needed)
            own = torch.cat([ordered, ordered.new_full((7,), SENTINEL)])
            found = bits.sites(own, count, extent, case.strides, *sizes)
            assert int(needed) == words
            if short:
                assert not counts.any()
                assert not found.inverse.any()
            else:
                check(found, case, rooms)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ((0, 0, LIMIT, 0), "y leaves"),
        ((0, -LIMIT - 1, 0, 0), "x leaves"),
        ((0, 0, 0, 1 << 30), "z leaves"),
        ((511, 0, 0, 0), "batch index leaves"),
        ((-1, 0, 0, 0), "batch index leaves"),
        ((510, LIMIT - 1, LIMIT - 1, LIMIT - 1), "more than 64 bits"),  # with another corner
    ],
)
def test_cells_that_no_key_holds_are_named(cell: tuple[int, ...], name: str) -> None:
    low = [0, -LIMIT, -LIMIT, -LIMIT]
    keys, extent = pack_cells(torch.tensor([low, cell], dtype=torch.int32))
    if name == "more than 64 bits":
        strides: list[Triple] = [(1, 1, 1), (2, 2, 2)]
        found = unique_sites(keys, extent, strides)
        assert found.counts.tolist() == [2, 2]
        check_overflow(int(extent[-1]))
        unique_sites(keys, extent, [*strides, (3, 3, 3)])
    with pytest.raises(ValueError, match=name):
        check_overflow(int(extent[-1]))


def some_keys(n: int) -> tuple[Tensor, Tensor]:
    keys = torch.zeros(1, dtype=torch.int64)
    return keys.expand(n), pack_cells(keys)[1]


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: unique_sites(*some_keys(3), [(n, n, n) for n in range(1, 14)]),
        "at most 12 levels, got 13",
    ),
    (lambda: RadixSort.of(1 << 30, torch.device("cpu")), "1073741823"),
    (
        lambda: reached_sites(VoxelGrid(some_keys(1 << 29)[0], 1, 0, check=False), Kernel.of(3, 2)),
        "candidates",
    ),
    (lambda: reached_sites(at_the_limit(), Kernel.of(7, 2)), "reached sites"),
]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(("call", "word"), REFUSED, ids=[word for _, word in REFUSED])
def test_what_does_not_fit_is_refused(call: Callable[[], object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        call()


def at_the_limit() -> VoxelGrid:
    limit = LIMIT - 2
    corners = torch.tensor([[b, x, y, 0] for b in (0, 1) for x in (-limit, limit) for y in (-5, 6)])
    keys = pack(corners).sort().values
    return VoxelGrid(keys, 2, limit, downsampling="reached")


def reached(number: int, simplified: bool) -> tuple[VoxelGrid, Kernel]:
    """Sites and a kernel that is strided or dilates; on a volume in one case of three."""
    draw = random.Random(number)
    size, stride, dilation, padding = (
        [draw.choice(values) for _ in range(3)]
        for values in ((1, 2, 3, 4, 5), (1, 2, 2, 3), (1, 1, 2, 3), (0, 1, 2))
    )
    given = (3, 2, 1, 1) if simplified else (size, stride, dilation, padding)
    kernel = Kernel.of(*given)  # type: ignore[arg-type]
    if number % 8 == 1:
        return at_the_limit(), Kernel.of(3, 2)
    n, shape = draw.choice((0, 1, 33, 300)), (9, 8, 7)
    cells = surface(n, seed=number)
    grid = grid_of_cells(cells % torch.tensor(shape), torch.arange(n) % 3, 3, "reached")
    if number % 3 == 0:
        return replace(grid, spatial_shape=draw.choice([shape, (1 << 20, 8, 7)])), kernel
    grid = surface_grid(n, batch_size=3, downsampling="reached")
    return (grid.strided(Kernel.of(2, 2)) if number % 3 == 1 else grid), kernel


@pytest.mark.parametrize("number", range(32))
@pytest.mark.parametrize("simplified", [True, False])
def test_reached_sites_are_those_of_the_geometry(
    device: torch.device, number: int, simplified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, kernel = reached(number, simplified)
    expected = grid.strided(kernel) if kernel.is_strided else grid.dilated(kernel)
    with guarded(monkeypatch) if expected.rows else nullcontext():
        sites = reached_sites(grid.to(device), kernel, simplified=simplified)
        assert (sites.keys != POISON).all()
    assert torch.equal(sites.keys.cpu(), expected.keys)
    facts = ("bound", "batch_size", "tensor_stride", "downsampling", "spatial_shape", "extent")
    assert [getattr(sites, name) for name in facts] == [getattr(expected, name) for name in facts]

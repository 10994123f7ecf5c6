import pytest
import torch

from pcnn.geometry.packing import DEFAULT_FORMAT, KeyFormat
from pcnn.maps.levels import check_overflow, extent_of, pack_cells, rows_above, unique_sites
from pcnn.maps.radix_sort import RadixSort
from tests.clouds import surface

pytestmark = pytest.mark.usefixtures("emulated")

STRIDES = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 2, 1), (16, 16, 16)]


def cells(n: int, batch: int = 1, centre: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    clouds = torch.randint(0, batch, (n, 1), generator=generator)
    return torch.cat([clouds, surface(n, seed=n, centre=centre)], 1).to(torch.int32)


def expected(coords: torch.Tensor, stride: tuple[int, int, int]) -> tuple[torch.Tensor, ...]:
    step = torch.tensor((1, *stride), device=coords.device)
    coarse = torch.div(coords.long(), step, rounding_mode="floor") * step
    return torch.unique(DEFAULT_FORMAT.pack(coarse), sorted=True, return_inverse=True)


@pytest.mark.parametrize(("n", "batch"), [(0, 1), (1, 3), (33, 1), (5000, 3), (100_000, 5)])
def test_every_level_holds_the_floor_of_every_cell(
    device: torch.device, n: int, batch: int
) -> None:
    if device.type == "cpu":
        n = min(n, 6000)
    coords = cells(n, batch).to(device)
    keys, extent = pack_cells(coords, DEFAULT_FORMAT)
    assert torch.equal(keys, DEFAULT_FORMAT.pack(coords))
    assert extent.tolist() == [*extent_of(keys, DEFAULT_FORMAT).tolist()]
    levels = unique_sites(keys, extent, STRIDES, DEFAULT_FORMAT)
    for level, stride in enumerate(STRIDES):
        sites, inverse = expected(coords, stride)
        assert int(levels.counts[level]) == len(sites)
        assert torch.equal(levels.keys[level, : len(sites)], sites)
        assert torch.equal(levels.inverse[level].long(), inverse)
        first = levels.first[level, : len(sites)].long()
        assert torch.equal(inverse[first], torch.arange(len(sites), device=device))


@pytest.mark.parametrize("n", [0, 1, 700])
def test_rows_above_lead_from_level_to_level(n: int) -> None:
    coords = cells(n, 2)
    keys, extent = pack_cells(coords, DEFAULT_FORMAT)
    strides = [(2, 2, 2), (4, 4, 4), (8, 8, 8)]
    levels = unique_sites(keys, extent, strides, DEFAULT_FORMAT)
    rows = levels.counts.tolist()
    pairs = [(None, 0, n), (0, 1, rows[0]), (1, 2, rows[1]), (None, 2, n)] * 4  # two launches
    for (finer, coarser, many), above in zip(pairs, rows_above(levels, pairs), strict=True):
        of_finest = levels.inverse[coarser].long()
        inside = slice(None) if finer is None else levels.first[finer, :many].long()
        assert above.dtype == torch.int64
        assert torch.equal(above, of_finest[inside])


@pytest.mark.usefixtures("reversed_blocks")
def test_blocks_may_run_in_descending_order() -> None:
    test_every_level_holds_the_floor_of_every_cell(torch.device("cpu"), 5000, 3)
    test_a_count_on_the_device_cuts_the_keys_short()


@pytest.mark.parametrize("passes", [1, 2, 8])
def test_a_sort_tells_how_many_passes_it_takes(passes: int) -> None:
    coords = cells(3000, 2)
    keys, extent = pack_cells(coords, DEFAULT_FORMAT)
    needed = torch.zeros(1, dtype=torch.int32)
    levels = unique_sites(keys, extent, STRIDES, DEFAULT_FORMAT, passes=passes, needed=needed)
    assert 2 < int(needed) < 8
    if passes >= int(needed):
        sites, _ = expected(coords, STRIDES[0])
        assert torch.equal(levels.keys[0, : len(sites)], sites)


def test_levels_that_exceed_a_sort_key_are_refused() -> None:
    # all 63 bits of a packed key, and a bit for the number of the level
    corners = torch.tensor([[0, -(1 << 17)], [510, (1 << 17) - 1]])[:, [0, 1, 1, 1]]
    keys, extent = pack_cells(corners.to(torch.int32), DEFAULT_FORMAT)
    unique_sites(keys, extent, [(1, 1, 1), (2, 2, 2)], DEFAULT_FORMAT)
    check_overflow(int(extent[-1]), DEFAULT_FORMAT)
    unique_sites(keys, extent, STRIDES, DEFAULT_FORMAT)
    with pytest.raises(ValueError, match="more than 64 bits"):
        check_overflow(int(extent[-1]), DEFAULT_FORMAT)


def test_more_levels_or_items_than_a_sort_takes_are_refused() -> None:
    keys = torch.zeros(3, dtype=torch.int64)
    extent = extent_of(keys, DEFAULT_FORMAT)
    with pytest.raises(ValueError, match="at most 12 levels, got 13"):
        unique_sites(keys, extent, [(n, n, n) for n in range(1, 14)], DEFAULT_FORMAT)
    with pytest.raises(ValueError, match="at most 1073741823 items"):
        RadixSort.of(1 << 30, keys.device)


def test_a_count_on_the_device_cuts_the_keys_short() -> None:
    coords = cells(3000)
    keys, extent = pack_cells(coords, DEFAULT_FORMAT)
    count = torch.tensor([2100], dtype=torch.int32)
    levels = unique_sites(keys, extent, [(1, 1, 1), (2, 2, 2)], DEFAULT_FORMAT, count)
    for level, stride in enumerate([(1, 1, 1), (2, 2, 2)]):
        sites, inverse = expected(coords[:2100], stride)
        assert torch.equal(levels.keys[level, : int(levels.counts[level])], sites)
        assert torch.equal(levels.inverse[level, :2100].long(), inverse)


def test_coordinates_at_the_limit_of_the_packing() -> None:
    corner = torch.tensor(
        [[0, -131072, 131071, 0], [0, 131071, -131072, -131072], [510, 0, 0, 131071]] * 2,
        dtype=torch.int32,
    )
    keys, extent = pack_cells(corner, DEFAULT_FORMAT)
    check_overflow(int(extent[-1]), DEFAULT_FORMAT)
    levels = unique_sites(keys, extent, [(1, 1, 1)], DEFAULT_FORMAT)
    assert torch.equal(levels.keys[0, :3], expected(corner, (1, 1, 1))[0])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ([0, 0, 131072, 0], r"y leaves -131072\.\.131071"),
        ([0, -131073, 0, 0], "x leaves"),
        ([0, 0, 0, 1 << 30], "z leaves"),
        ([511, 0, 0, 0], r"batch index leaves 0\.\.510"),
        ([-1, 0, 0, 0], "batch index leaves"),
    ],
)
def test_a_cell_beyond_the_packing_is_named(cell: list[int], message: str) -> None:
    coords = torch.cat([cells(100), torch.tensor([cell], dtype=torch.int32)])
    _, extent = pack_cells(coords, DEFAULT_FORMAT)
    with pytest.raises(ValueError, match=message):
        check_overflow(int(extent[-1]), DEFAULT_FORMAT)


def test_other_widths_of_the_key() -> None:
    layout = KeyFormat(0, (12, 12, 8))
    coords = cells(500)
    coords[:, 3] %= 100
    keys, extent = pack_cells(coords, layout)
    assert int(extent[-1]) == 0
    assert torch.equal(keys, layout.pack(coords))
    levels = unique_sites(keys, extent, [(2, 2, 2)], layout)
    step = torch.tensor((1, 2, 2, 2))
    coarse = torch.div(coords.long(), step, rounding_mode="floor") * step
    sites = torch.unique(layout.pack(coarse), sorted=True)
    assert torch.equal(levels.keys[0, : int(levels.counts[0])], sites)

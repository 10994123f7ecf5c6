"""Slots of offsets: rounding, the border of the box, and the radius of the field."""

import itertools
import math

import numpy as np
import pytest
import torch

from pcnn.maps.local_voxels import box_reach, cells_of, official_radius, outside_share, slots_of

GRID = (0.05, 0.05, 0.05)


def offsets(n: int, spread: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(n, 3, generator=generator) - 0.5) * 2 * spread


def test_halves_round_away_from_zero() -> None:
    halves = torch.tensor([0.5, -0.5, 1.5, -1.5, 2.5, 0.49999997, -0.49999997, 1.4999999, 0.0])
    cells = cells_of(halves[:, None].expand(-1, 3), (1.0, 1.0, 1.0))
    assert cells[:, 1].tolist() == [1, -1, 2, -2, 3, 0, 0, 1, 0]


def test_large_quotients_stay_exact() -> None:
    values = torch.tensor([8388607.5, -8388607.5, 16777216.0, 4194304.25])
    cells = cells_of(values[:, None].expand(-1, 3), (1.0, 1.0, 1.0))
    assert cells[:, 0].tolist() == [8388608, -8388608, 16777216, 4194304]


@pytest.mark.parametrize("size", [(5, 5, 5), (3, 5, 1)], ids=str)
@pytest.mark.parametrize("outside", ["clamp", "drop"])
def test_slots_equal_loops_and_mirror(size: tuple[int, int, int], outside: str) -> None:
    grid = (0.05, 0.1, 0.02)
    given = offsets(500, 0.3)
    found = slots_of(given, grid, size, outside)
    volume = math.prod(size)
    for offset, slot in zip(given.numpy(), found.tolist(), strict=True):
        cells = []
        for value, edge, width in zip(offset, grid, size, strict=True):
            quotient = float(value / np.float32(edge))
            cell = int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))
            inside = max(-(width // 2), min(width // 2, cell))
            cells.append((inside + width // 2, inside == cell))
        (x, a), (y, b), (z, c) = cells
        kept = outside == "clamp" or (a and b and c)
        assert slot == ((x * size[1] + y) * size[2] + z if kept else -1)
    mirrored = slots_of(-given, grid, size, outside)
    expected = torch.where(found < 0, -1, volume - 1 - found)
    assert torch.equal(mirrored, expected)


def test_reaches() -> None:
    assert official_radius(1.0, 3) == pytest.approx(1.8611, abs=1e-4)
    assert official_radius(0.05, 3, volume=8.0) == pytest.approx(2 * official_radius(0.05, 3))
    assert box_reach((0.1, 0.2, 0.4), (1, 3, 5)) == pytest.approx((0.05, 0.3, 1.0))
    assert box_reach((0.1, 0.2, 0.4), (1, 3, 5), volume=8.0) == pytest.approx((0.1, 0.6, 2.0))


def test_the_share_outside_is_what_is_dropped() -> None:
    given = offsets(3000, 0.1)
    dropped = (slots_of(given, GRID, (3, 3, 3), "drop") < 0).double().mean()
    assert outside_share(given, GRID, (3, 3, 3)) == pytest.approx(float(dropped))
    assert 0.1 < dropped < 0.9
    assert outside_share(given[:0], GRID, (3, 3, 3)) == 0.0


def test_errors() -> None:
    for size in itertools.product((2, 3), repeat=3):
        if size != (3, 3, 3):
            with pytest.raises(ValueError, match="odd kernel size"):
                slots_of(offsets(3, 1.0), GRID, size)
    with pytest.raises(ValueError, match="outside must be one of clamp, drop"):
        slots_of(offsets(3, 1.0), GRID, (3, 3, 3), "keep")

"""How a kernel that moves rows of channels splits them among programs and threads."""

from __future__ import annotations

from pcnn.kernels.product_tiles import power_of_two

#: Threads of a program, as warps of 32.
WARPS = 4

#: Bytes that one thread moves by one instruction.
VECTOR_BYTES = 16

#: Most channels of a program; wider rows take several programs.
WIDEST_TILE = 512


def tiles_of(channels: int) -> tuple[int, ...]:
    """Channel tiles that suit rows of so many channels, ascending: what a tuner tries.

    The divisors of ``channels`` that are powers of two, as Minuet section 5.2.1 tries divisors, and
    the smallest power of two that holds a whole row. Programs handle powers of two.
    """
    divisors = (1 << power for power in range(channels.bit_length()))
    tiles = {tile for tile in divisors if tile <= WIDEST_TILE and channels % tile == 0}
    return tuple(sorted(tiles | {default_tile(channels)}))


def default_tile(channels: int) -> int:
    """The whole row, up to `WIDEST_TILE` channels: where a row's triplets lie is read once."""
    return min(WIDEST_TILE, power_of_two(channels))


def tile_shape(channels: int, tile: int | None, itemsize: int) -> tuple[int, int, int]:
    """Programs a row, channels and rows of a program.

    Every thread has one access for all rows of its program, of up to `VECTOR_BYTES` of neighbouring
    channels, as far as rows of so many channels are aligned to them.
    """
    tile = default_tile(channels) if tile is None else tile
    if not 0 < tile <= WIDEST_TILE or tile & (tile - 1):
        raise ValueError(f"a channel tile is a power of two up to {WIDEST_TILE}, got {tile}")
    aligned = channels & -channels  # the largest power of two that divides it
    elements = 32 * WARPS * min(VECTOR_BYTES // itemsize, aligned)
    tile = min(tile, elements)
    return -(-channels // tile), tile, elements // tile

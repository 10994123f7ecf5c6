"""How an implicit GEMM is cut into programs, and a choice that is good without measuring."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from pcnn.kernels.product_tiles import power_of_two

#: Multiprocessors of a large GPU: fewer programs leave some of them idle.
PROCESSORS = 132

#: Steps of a tile, some 0.5 us each, from which several programs share them.
MANY_STEPS = 64


@dataclass(frozen=True)
class GemmBlocks:
    """Shape of the work of one program.

    Args:
        rows: output rows; divides the rows of a tile.
        channels_out: output channels.
        channels_in: input channels of one step; a multiple of all of them packs so many slots.
        split: programs that share the steps of a tile; their sums are added afterwards.
        warps: warps of a program.
        stages: depth of the software pipeline: lists of rows, rows, products.
    """

    rows: int = 128
    channels_out: int = 64
    channels_in: int = 64
    split: int = 1
    warps: int = 4
    stages: int = 5

    @property
    def name(self) -> str:
        """The settings as part of an identifier."""
        parts = self.rows, self.channels_out, self.channels_in, self.split, self.warps, self.stages
        return "_".join(map(str, parts))


@functools.lru_cache(maxsize=4096)
def default_blocks(
    c_in: int, c_out: int, tiles: int, volume: int, dtype: torch.dtype, exact: bool = True
) -> GemmBlocks:
    """Blocks for a layer, as measured on LiDAR scans and rooms.

    One program spans all output channels if registers allow, so that every row is gathered once; a
    row of few channels is gathered together with the next slots' rows. Layers of few rows would
    leave multiprocessors idle: they get smaller blocks, and at last share the steps of a tile.

    Args:
        c_in: input channels of a group.
        c_out: output channels of a group.
        tiles: of ``TILE_ROWS`` output rows.
        volume: kernel slots K.
        dtype: of the operands.
        exact: float32 is multiplied in float32, not in TF32.
    """
    if dtype.itemsize > 2:
        return _wide_blocks(c_in, c_out, exact)
    channels_out = max(16, min(128, power_of_two(c_out)))
    warps = 2 if channels_out <= 32 else 4
    if c_out >= 256 and tiles * -(-c_out // 256) >= 2 * PROCESSORS:
        channels_out, warps = 256, 8
    channels_in = max(16, _divisor(c_in, 64))
    rows, split = 128, 1
    programs = tiles * -(-c_out // channels_out)
    if programs < 2 * PROCESSORS and channels_out >= 64:
        rows, programs = 64, 2 * programs
    if programs < PROCESSORS // 4 and channels_out > 64:
        channels_out, programs = 64, 2 * programs
    # adding up parts is a launch more: it pays where one program would take many steps
    many = volume * c_in >= MANY_STEPS * channels_in
    while many and programs * split < PROCESSORS and split < 8:
        split *= 2
    return GemmBlocks(rows, channels_out, channels_in, split, warps, 4 if c_in < 16 else 5)


def _wide_blocks(c_in: int, c_out: int, exact: bool) -> GemmBlocks:
    """Blocks of float32 operands, which take twice the shared memory."""
    channels_out = max(16, min(64 if exact else 32, power_of_two(c_out)))
    warps = 4 if exact or channels_out == 16 else 2
    return GemmBlocks(64, channels_out, max(16, _divisor(c_in, 32)), 1, warps, 5)


def _divisor(channels: int, most: int) -> int:
    """Channels of a step: a power of two that divides them all, if that is not too small."""
    exact = channels & -channels
    if exact >= 32:
        return min(exact, most)
    return min(most, power_of_two(channels))

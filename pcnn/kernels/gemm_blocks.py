"""How an implicit GEMM is cut into programs, and a choice that is good without measuring."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

import torch

from pcnn.geometry.tile_steps import TILE_ROWS
from pcnn.kernels.product_tiles import power_of_two

#: Multiprocessors of a large GPU: fewer programs leave some of them idle.
PROCESSORS = 132

#: Slots, and input channels of all of them, from which several programs share a tile. Tiles of
#: kernels of fewer slots fill few of them.
MANY_SLOTS, MANY_CHANNELS = 16, 27 * 64

#: Steps, some 0.4 us each, that a program has at least when it shares a tile.
FEW_STEPS = 6

#: Programs of float32 operands for a multiprocessor, where tiles are shared.
WAVES = 4


@dataclass(frozen=True)
class GemmBlocks:
    """Shape of the work of one program."""

    rows: int = 128  # output rows; divides the rows of a tile
    channels_out: int = 64  # output channels; a power of two, or a sum of two (parts_of)
    channels_in: int = 64  # input channels of one step
    split: int = 1  # programs that share the steps of a tile; their sums are added afterwards
    warps: int = 4  # warps of a program
    stages: int = 5  # depth of the software pipeline: lists of rows, rows, products

    @classmethod
    def of(cls, values: Mapping[str, int]) -> GemmBlocks:
        """Blocks of plain numbers, as a file holds them; a ValueError names what is wrong."""
        known = {field.name for field in fields(cls)}
        wrong = [f"{k}: {v!r}" for k, v in values.items() if k not in known or type(v) is not int]
        if wrong:
            raise ValueError(
                f"blocks has {', '.join(sorted(known))}, whole numbers, got {', '.join(wrong)}"
            )
        made = cls(**values)
        powers = made.rows, made.channels_in, made.warps
        if not all(one > 0 and one & (one - 1) == 0 for one in powers):
            raise ValueError(f"rows, channels_in and warps must be powers of two: {made}")
        least = made.rows >= 16 and made.channels_in >= 16 and made.split > 0 and made.stages > 0
        if not least or made.rows > TILE_ROWS:
            raise ValueError(
                f"rows must be 16 to {TILE_ROWS}, channels_in 16 or more, split and stages 1 or "
                f"more: {made}"
            )
        parts_of(made.channels_out)
        return made

    def neighbours(self) -> Iterator[GemmBlocks]:
        """Blocks that differ in one number; a kernel has to be compiled for each."""
        yield replace(self, rows=64 if self.rows > 64 else 128)
        if self.channels_out > 32:
            yield replace(self, channels_out=self.channels_out // 2)
        if self.channels_in > 32:
            yield replace(self, channels_in=self.channels_in // 2)
        yield replace(self, split=self.split // 2 if self.split > 1 else 2)
        yield replace(self, warps=8 if self.warps < 8 else 4)


def parts_of(channels_out: int) -> tuple[int, int]:
    """The powers of two that output channels are a sum of, larger one first; 96 is 64 and 32."""
    first = 1 << channels_out.bit_length() - 1
    rest = channels_out - first
    if first < 16 or 0 < rest < 16 or rest & (rest - 1):
        raise ValueError(
            f"channels_out must be a power of two from 16, or a sum of two, got {channels_out}"
        )
    return first, rest


@functools.lru_cache(maxsize=4096)
def default_blocks(
    c_in: int,
    c_out: int,
    tiles: int,
    volume: int,
    dtype: torch.dtype,
    exact: bool = True,
    c_second: int = 0,
    sections: bool = False,
    several: bool = False,
) -> GemmBlocks:
    """Blocks for a layer, as measured on LiDAR scans and rooms."""
    channels, most = c_in + c_second, 1 if sections else 32 if several else 8
    if dtype.itemsize > 2:
        own = _wide_blocks(c_in, c_out, exact)
        programs = tiles * (TILE_ROWS // own.rows) * -(-c_out // own.channels_out)
        steps = volume * channels // own.channels_in if volume >= MANY_SLOTS else 0
        return replace(own, split=_shared(programs, WAVES * PROCESSORS, steps, most))
    blocks = -(-c_out // 128)
    channels_out = _columns(-(-c_out // blocks))
    common, deepest = math.gcd(c_in, c_second), 32 if channels_out == 96 else 64
    channels_in = max(16, _divisor(common if common & -common >= 32 else c_in, deepest))
    rows, split = 128, 1
    warps = 2 if channels_out == 16 or (sections and channels_out == 32) else 4
    if c_out % 256 == 0 and tiles * c_out // 256 >= 2 * PROCESSORS:
        return GemmBlocks(rows, 256, channels_in, split, 8, 5)
    programs = tiles * blocks
    few = 3 if blocks == 1 and channels_out > 64 else 2
    if c_in < 16 or (programs < few * PROCESSORS and channels_out >= 32):
        rows, programs = 64, 2 * programs
    if programs < PROCESSORS // 4 and c_out % 64 == 0 and channels_out > 64:
        channels_out, programs = 64, 2 * programs
    # adding up parts is a launch more: it pays where one program would take many steps
    many = volume >= MANY_SLOTS and volume * channels >= MANY_CHANNELS
    waves = 3 if rows == 64 and (channels_out == 96 or (c_second and blocks > 1)) else 2
    # a tile takes several steps a slot where slots hold several inputs
    if many:
        split = _shared(programs, waves * PROCESSORS, volume * channels // channels_in, most)
    # more loads in flight pay where a program is left to itself for many steps
    long = volume >= MANY_SLOTS and split == 1 and not sections
    deep = 32 <= channels_out <= 64 or (rows == 64 and channels <= 64 < channels_out)
    stages = 4 if c_in < 16 else 7 if long and deep else 5
    return GemmBlocks(rows, channels_out, channels_in, split, warps, stages)


def _shared(programs: int, wanted: int, steps: int, most: int) -> int:
    """Programs that share the steps of a tile, where so many are wanted for all tiles."""
    split = 1
    while programs * split < wanted and 2 * split <= min(most, steps // FEW_STEPS):
        split *= 2
    return split


def _columns(channels: int) -> int:
    """Output channels of a program that computes so many: little is left over."""
    return 96 if 64 < channels <= 96 else max(16, power_of_two(channels))


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

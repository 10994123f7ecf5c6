"""Shape of a product of gathered rows with weights, and how kernels cut it.

Torch only, so that settings of dataflows are there without Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.kernels.conv_spec import ConvSpec

#: Pairs, and output rows, from which tiles of 128 fill a device: 132 multiprocessors, a few
#: programs each. Fewer are cut into tiles of 64.
MANY_PAIRS, MANY_ROWS = 1 << 17, 1 << 15

#: Widest column tile and deepest step on tensor cores, and of exact float32 products, which run on
#: ordinary cores and hold their operands in registers.
TENSOR_CORES, ORDINARY_CORES = (128, 64), (64, 32)

#: Of a kernel that moves rows: threads of a program, as warps of 32.
WARPS = 4

#: Bytes that one thread moves by one instruction.
VECTOR_BYTES = 16

#: Most channels of a program; wider rows take several programs.
WIDEST_TILE = 512

#: Channels that narrow groups are packed up to: a row of them is one line of memory in float16.
PACKED = 64


def power_of_two(number: int) -> int:
    """The power of two from ``number`` upwards; Triton's own function takes 5 us."""
    return 1 << max(0, number - 1).bit_length()


def side_by_side(groups: int, channels: int) -> int:
    """Groups that are taken together: a power of two that divides them, up to `PACKED` channels."""
    together = 1
    while groups % (2 * together) == 0 and 2 * together * channels <= PACKED:
        together *= 2
    return together


def joined_groups(weight: Tensor, groups: int, together: int) -> Tensor:
    """The weight of a product that takes so many groups as one:
    theirs on the diagonal of a block.
    """
    volume, inputs, width = weight.shape
    outputs = width // groups
    apart = weight.reshape(volume, inputs, groups // together, together, outputs)
    joined = weight.new_zeros(volume, together, inputs, groups // together, together, outputs)
    joined.diagonal(dim1=1, dim2=4).copy_(apart.transpose(3, 4))
    return joined.view(volume, together * inputs, width)


@dataclass(frozen=True)
class ProductShape:
    """Sizes of a product, seen from the side it is computed from."""

    volume: int  # number of kernel slots K
    channels: int  # contracted channels of a group, those of a second source not counted
    second: int  # channels of a second source, which follow those of the first; 0 without one
    outputs: int  # output channels of a group
    groups: int  # groups of channels
    transposed: bool  # whether every W[k] is read transposed
    mirrored: bool  # whether slot k multiplies W[K - 1 - k]

    @classmethod
    def of(cls, weight: Tensor, spec: ConvSpec) -> ProductShape:
        """Shape of a product with ``weight`` ``[K, C_in / groups, C_out]``."""
        volume, inputs, outputs = weight.shape
        outputs //= spec.groups
        if spec.transposed:
            inputs, outputs = outputs, inputs
        beside = 0 if spec.skip is None else spec.skip.shape[1]
        sizes = volume, inputs - beside, beside, outputs
        return cls(*sizes, spec.groups, spec.transposed, spec.mirrored)

    @property
    def side_by_side(self) -> int:
        """Groups that one product takes side by side, so that narrow ones fill tensor cores' tiles.

        Their weights stand on the diagonal of a block, and what is off it is zero: an infinite
        feature of a group makes NaN of the others beside it.
        """
        return 1 if self.second else side_by_side(self.groups, max(self.channels, self.outputs))

    def packed(self) -> ProductShape:
        """The same product, `side_by_side` groups seen as one."""
        together = self.side_by_side
        if together == 1:
            return self
        wide = together * self.channels, self.second, together * self.outputs
        return ProductShape(
            self.volume, *wide, self.groups // together, self.transposed, self.mirrored
        )

    @property
    def width(self) -> int:
        """Channels of an output row."""
        return self.groups * self.outputs

    def block(self, compute_dtype: torch.dtype) -> tuple[int, int]:
        """Output channels of a tile, contracted channels of a step: all of them where they fit."""
        on_tensor_cores = compute_dtype.itemsize == 2
        columns, depth = TENSOR_CORES if on_tensor_cores else ORDINARY_CORES
        return min(columns, _power(self.outputs)), min(depth, _power(self.channels))


class Tiles(NamedTuple):
    """How a product is cut; sizes but the chunk are powers of two, from 16."""

    rows: int  # output rows of a program, or pairs that are multiplied at a time
    columns: int  # output channels of a program
    depth: int  # contracted channels of a step
    warps: int = 4  # of a program
    stages: int = 3  # of the pipeline that gathers ahead of the products
    chunk: int = 0  # pairs L of a program, all of one slot; a multiple of rows


def row_tiles(shape: ProductShape, n_out: int, compute_dtype: torch.dtype) -> Tiles:
    """Tiles of an output-stationary product: wide ones where rows enough fill a device."""
    columns, depth = shape.block(compute_dtype)
    if depth == 64 and shape.channels % 64 and shape.channels % 32 == 0:
        depth = 32  # 96 channels are three whole steps of 32, or one and a half of 64
    # steps of 32 channels leave 128 x 128 sums too little work between two gathers
    short = columns == 128 and depth < 64
    rows = 64 if n_out < MANY_ROWS or short or compute_dtype.itemsize == 4 else 128
    return Tiles(rows, columns, depth, 8 if rows * columns >= 128 * 128 else 4)


def chunk_tiles(shape: ProductShape, pairs: int, compute_dtype: torch.dtype) -> Tiles:
    """Tiles of a weight-stationary product, by what bounds it.

    A gathered row is read once per column tile, so columns cover all outputs up to 128. A slot's
    weight is read once per chunk: up to 64 channels it stays in place while a chunk of four tiles
    passes; beyond, 128 rows share it. A thread holds at most 64 sums, and programs stay under 128
    registers, so that two of 8 warps or more of 4 share a multiprocessor. Few pairs are cut finer,
    to fill the device.
    """
    columns, depth = shape.block(compute_dtype)
    if pairs < MANY_PAIRS or compute_dtype.itemsize == 4:
        return Tiles(64, columns, depth, 8 if columns == 128 else 4, chunk=64)
    if shape.channels <= depth and not shape.second and columns <= 64:
        return Tiles(64, columns, depth, chunk=256)
    if columns < 128:
        return Tiles(128, columns, depth, 8, chunk=128)
    return Tiles(128, columns, 32, 8, 4, chunk=128)


def _power(channels: int) -> int:
    """Smallest power of two that holds so many channels, and that tensor cores take."""
    return max(16, power_of_two(channels))


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

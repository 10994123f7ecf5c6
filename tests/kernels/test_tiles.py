"""How products are cut without measuring: of sizes that Triton takes, and few columns left over."""

from itertools import product

import pytest
import torch

from pcnn.geometry.steps import TILE_ROWS
from pcnn.kernels.gemm_blocks import default_blocks, parts_of
from pcnn.kernels.product_tiles import (
    MANY_PAIRS,
    ProductShape,
    chunk_tiles,
    power_of_two,
    row_tiles,
)

HALF, SINGLE = torch.float16, torch.float32


def test_output_channels_are_a_sum_of_two_powers_of_two() -> None:
    for n, parts in {16: (16, 0), 48: (32, 16), 96: (64, 32), 128: (128, 0)}.items():
        assert parts_of(n) == parts
    for n in (8, 24, 40, 112):
        with pytest.raises(ValueError, match=str(n)):
            parts_of(n)


def test_layers_of_every_size_are_cut() -> None:
    for c_in, c_second, c_out, tiles, volume, dtype in product(
        (1, 4, 33, 96, 256),
        (0, 5, 32, 64),
        (1, 20, 96, 160, 256),
        (1, 100, 1000),
        (8, 27),
        (HALF, SINGLE),
    ):
        blocks = default_blocks(c_in, c_out, tiles, volume, dtype, True, c_second)
        assert TILE_ROWS % blocks.rows == 0
        assert sum(parts_of(blocks.channels_out)) == blocks.channels_out
        assert blocks.channels_in == max(16, power_of_two(blocks.channels_in))
    for c, pairs, dtype in product((1, 16, 33, 96, 256), (0, 1000, MANY_PAIRS), (HALF, SINGLE)):
        shape = ProductShape(27, c, 0, c, groups=1, transposed=False, mirrored=False)
        chunks = chunk_tiles(shape, pairs, dtype)
        assert chunks.chunk % chunks.rows == 0
        for tiles in (chunks, row_tiles(shape, pairs, dtype)):
            assert all(size == max(16, power_of_two(size)) for size in tiles[:3]), tiles


def test_few_columns_are_left_over_and_few_rows_share_their_steps() -> None:
    for c_out, columns in {70: 96, 96: 96, 128: 128, 192: 96, 33: 64}.items():
        assert default_blocks(64, c_out, 1000, 27, HALF).channels_out == columns
    assert default_blocks(256, 256, 10, 27, HALF).split == 8
    assert default_blocks(512, 512, 1, 27, HALF, several=True).split == 32
    assert default_blocks(256, 256, 1000, 27, HALF).split == 1
    assert default_blocks(256, 256, 10, 8, HALF).split == 1
    assert default_blocks(96, 96, 1000, 27, HALF, c_second=32).channels_in == 32
    # rows of 96 channels are cut into whole steps
    tiles = row_tiles(ProductShape(27, 96, 0, 96, 1, False, False), 1 << 17, HALF)
    assert tiles[:3] == (64, 128, 32)

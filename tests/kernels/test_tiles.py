"""How products are cut without measuring: of sizes that Triton takes, and few columns left over."""

from itertools import product

import torch

from pcnn.geometry.tile_steps import TILE_ROWS
from pcnn.kernels.gemm_blocks import default_blocks, parts_of
from pcnn.kernels.product_tiles import (
    MANY_PAIRS,
    ProductShape,
    chunk_tiles,
    power_of_two,
    row_tiles,
)

HALF, SINGLE = torch.float16, torch.float32


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

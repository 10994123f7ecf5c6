"""Tiles that are taken without measuring are of sizes that Triton takes."""

from dataclasses import astuple

import pytest
import torch

from pcnn.kernels.product_tiles import (
    MANY_PAIRS,
    WARPS,
    ChunkTiles,
    ProductShape,
    RowTiles,
    power_of_two,
)


@pytest.mark.parametrize("pairs", [1000, MANY_PAIRS])
@pytest.mark.parametrize("channels", [16, 32, 96, 128])
def test_sizes_are_powers_of_two(pairs: int, channels: int) -> None:
    shape = ProductShape(27, channels, 0, channels, groups=1, transposed=False, mirrored=False)
    assert power_of_two(WARPS) == WARPS
    for dtype in (torch.float16, torch.float32):
        for tiles in (ChunkTiles.of(shape, pairs, dtype), RowTiles.of(shape, pairs, dtype)):
            sizes = astuple(tiles)[:-1]  # stages may be of any number
            assert all(size == power_of_two(size) for size in sizes), tiles


def test_rows_of_96_channels_are_cut_into_whole_steps() -> None:
    tiles = RowTiles.of(ProductShape(27, 96, 0, 96, 1, False, False), 1 << 17, torch.float16)
    assert (tiles.rows, tiles.columns, tiles.depth) == (64, 128, 32)

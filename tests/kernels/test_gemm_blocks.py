"""How an implicit GEMM is cut."""

from itertools import product

import pytest
import torch

from pcnn.geometry.steps import TILE_ROWS
from pcnn.kernels.gemm_blocks import default_blocks, parts_of


def test_output_channels_are_a_sum_of_two_powers_of_two() -> None:
    assert [parts_of(n) for n in (16, 48, 96, 128, 192)] == [
        (16, 0),
        (32, 16),
        (64, 32),
        (128, 0),
        (128, 64),
    ]
    for number in (8, 24, 40, 112):
        with pytest.raises(
            ValueError, match=f"power of two from 16, or a sum of two, got {number}"
        ):
            parts_of(number)


def test_layers_of_every_size_are_cut() -> None:
    dtypes = torch.float16, torch.float32
    for c_in, c_second, c_out, tiles, volume, dtype in product(
        (1, 4, 33, 96, 256), (0, 5, 32, 64), (1, 20, 96, 160, 256), (1, 100, 1000), (8, 27), dtypes
    ):
        blocks = default_blocks(c_in, c_out, tiles, volume, dtype, True, c_second)
        assert TILE_ROWS % blocks.rows == 0
        assert sum(parts_of(blocks.channels_out)) == blocks.channels_out
        assert blocks.channels_in >= 16
        assert blocks.channels_in & (blocks.channels_in - 1) == 0


@pytest.mark.parametrize(
    ("c_out", "columns"), [(70, 96), (96, 96), (128, 128), (192, 96), (33, 64)]
)
def test_few_columns_are_left_over(c_out: int, columns: int) -> None:
    assert default_blocks(64, c_out, 1000, 27, torch.float16).channels_out == columns


def test_few_rows_share_their_steps() -> None:
    assert default_blocks(256, 256, 10, 27, torch.float16).split == 8
    assert default_blocks(512, 512, 1, 27, torch.float16, several=True).split == 32
    assert default_blocks(256, 256, 1000, 27, torch.float16).split == 1
    assert default_blocks(256, 256, 10, 8, torch.float16).split == 1
    assert default_blocks(96, 96, 1000, 27, torch.float16, c_second=32).channels_in == 32

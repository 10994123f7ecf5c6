"""Compiled Triton kernels multiply by the warpgroups of Hopper. No GPU."""

import os
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pcnn.geometry.steps import TILE_ROWS
from pcnn.kernels.gather_gemm import gather_gemm
from pcnn.kernels.gemm_blocks import default_blocks, parts_of


def compiled(kernel: Any, constants: dict[str, Any], types: dict[str, str], **options: int) -> Any:
    """A kernel for compute capability 9.0, all pointers aligned to 16 bytes."""
    names = kernel.arg_names
    source = ASTSource(
        kernel,
        signature={n: "constexpr" if n in constants else types[n] for n in names},
        constexprs=constants,
        attrs={
            (place,): [["tt.divisibility", 16]]
            for place, name in enumerate(names)
            if name not in constants and types[name].startswith("*")
        },
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def product_of(channels: int, rows: int = 150_000, volume: int = 27) -> str:
    """What a layer launches on compute capability 9.0, pointers aligned to 16 bytes."""
    blocks = default_blocks(channels, channels, rows // TILE_ROWS, volume, torch.float16)
    constants: dict[str, Any] = {
        **{"C_IN": channels, "C_SECOND": 0, "C_OUT": channels, "GROUPS": 1, "VOLUME": volume},
        **{"TILE_ROWS": TILE_ROWS, "SUMMED": 16, "TRANSPOSED": False, "MIRRORED": False},
        **{"ADDS": False, "RELU": True, "PRECISION": "ieee", "BLOCK_ROWS": blocks.rows},
        **dict(zip(("BLOCK_OUT", "BLOCK_REST"), parts_of(blocks.channels_out), strict=True)),
        **{"BLOCK_IN": blocks.channels_in},
        **{"SPLIT": blocks.split, "PACK": 1, "STAGES": blocks.stages},
    }
    lists = "tile_out", "tile_begin", "tile_end", "step_slots", "step_rows"
    types = dict.fromkeys(lists, "*i32")
    constants |= {"tile_starts": None, "inputs": None}
    types |= dict.fromkeys(("x", "weight", "out", "residual"), "*fp16")
    types |= {"scale": "*fp32", "shift": "*fp32", "n_out": "i32", "second_offset": "i32"}
    options = {"num_warps": blocks.warps, "num_stages": 3}
    return str(compiled(gather_gemm, constants, types, **options).asm["ptx"])


@pytest.mark.parametrize(("channels", "by_warpgroups"), [(16, False), (64, True)])
def test_layers_from_64_channels_on_multiply_by_warpgroups(
    channels: int, by_warpgroups: bool
) -> None:
    text = product_of(channels)
    assert ("wgmma.mma_async" in text) == by_warpgroups
    assert ("mma.sync" in text) != by_warpgroups

"""How wide the accesses of compiled kernels are; compiled for a GPU, without one."""

import os
import re
from typing import Any

import pytest

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pcnn.kernels.gather_scatter import gather_kernel, gather_slots_kernel, scatter_kernel
from pcnn.kernels.row_tiles import WARPS, tile_shape

TYPES = {
    "position_ptr": "*i32",
    "slot_ptr": "*i16",
    "offsets_ptr": "*i64",
    "shifts_ptr": "*i64",
    "counts_ptr": "*i64",
    "index_ptr": "*i32",
}
NO_EPILOGUE = {"scale_ptr": None, "shift_ptr": None, "residual_ptr": None, "RELU": False}
#: Kernel, constants besides the tile, rows it reads and rows it writes in its text.
KERNELS = {
    "gather": (gather_kernel, {}, 1, 4),
    "scatter": (scatter_kernel, NO_EPILOGUE, 4, 1),
    "gather_slots": (gather_slots_kernel, {"VOLUME": 27, "SLOTS": 32}, 1, 1),
}


def compiled(kernel: Any, constants: dict[str, Any], channels: int) -> str:
    """PTX for compute capability 9.0, all pointers aligned to 16 bytes, rows of float16."""
    _, tile, rows = tile_shape(channels, None, 2)
    constants = {**constants, "CHANNELS": channels, "TILE": tile, "ROWS": rows}
    names = kernel.arg_names
    plain = {n: TYPES.get(n, "*fp16" if n.endswith("_ptr") else "i32") for n in names}
    pointers = {n for n in names if n.endswith("_ptr") and n not in constants}
    source = ASTSource(
        kernel,
        signature={n: "constexpr" if n in constants else kind for n, kind in plain.items()},
        constexprs=constants,
        attrs={(names.index(n),): [["tt.divisibility", 16]] for n in pointers},
    )
    target = GPUTarget("cuda", 90, 32)
    return str(triton.compile(source, target=target, options={"num_warps": WARPS}).asm["ptx"])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("channels", [64, 96, 33])
def test_threads_move_sixteen_bytes_of_aligned_rows(name: str, channels: int) -> None:
    kernel, constants, reads, writes = KERNELS[name]
    text = compiled(kernel, constants, channels)
    vectorised = channels % 8 == 0
    wide = (reads, writes) if vectorised else (0, 0)
    accesses = (len(re.findall(rf"{way}\.global\S*\.v4\.b32", text)) for way in ("ld", "st"))
    assert tuple(accesses) == wide
    assert len(re.findall(r"st\.global\S*\.b16", text)) == (0 if vectorised else writes)
    assert vectorised or not re.search(r"global\S*\.v[24]\.", text)

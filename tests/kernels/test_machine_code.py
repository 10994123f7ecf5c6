"""What compiled Triton kernels are made of: wide accesses, Hopper's warpgroup products. No GPU."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.layers import parts_of_call
from pcnn.geometry.steps import TILE_ROWS
from pcnn.kernels.dense_slots import dense_slots_kernel
from pcnn.kernels.gather_gemm import gather_gemm
from pcnn.kernels.gather_scatter import gather_kernel, scatter_kernel, slots_kernel
from pcnn.kernels.gemm_blocks import default_blocks, parts_of
from pcnn.kernels.product_tiles import WARPS, tile_shape
from pcnn.kernels.weight_stationary import weight_stationary_kernel


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
    "gather_slots": (slots_kernel, {"VOLUME": 27, "SLOTS": 32, "SCATTER": False}, 1, 1),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("channels", [64, 96, 33])
def test_threads_move_sixteen_bytes_of_aligned_rows(name: str, channels: int) -> None:
    kernel, constants, reads, writes = KERNELS[name]
    _, tile, rows = tile_shape(channels, None, 2)
    constants = {**constants, "CHANNELS": channels, "TILE": tile, "ROWS": rows}
    names = kernel.arg_names
    types = {n: TYPES.get(n, "*fp16" if n.endswith("_ptr") else "i32") for n in names}
    text = str(compiled(kernel, constants, types, num_warps=WARPS).asm["ptx"])
    vectorised = channels % 8 == 0
    wide = (reads, writes) if vectorised else (0, 0)
    accesses = (len(re.findall(rf"{way}\.global\S*\.v4\.b32", text)) for way in ("ld", "st"))
    assert tuple(accesses) == wide
    assert len(re.findall(r"st\.global\S*\.b16", text)) == (0 if vectorised else writes)
    assert vectorised or not re.search(r"global\S*\.v[24]\.", text)


#: The product of a warpgroup from shared memory, and one of a warp from registers.
WARPGROUP, WARP = re.compile(r"\bHGMMA\.\d+x\d+x\d+\.F32"), re.compile(r"\bHMMA\.\d+\.F32")


def disassembled(cubin: bytes, folder: Path) -> str:
    """SASS of a compiled kernel, by the tool that comes with CUDA or with Triton."""
    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    tool = shutil.which("cuobjdump") or (str(bundled) if bundled.exists() else None)
    if tool is None:
        pytest.skip("no cuobjdump, neither of CUDA nor of Triton")
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    done = subprocess.run([tool, "-sass", str(path)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cuobjdump does not serve: {done.stderr.strip()[:200]}")
    return done.stdout


def product_of(channels: int, rows: int = 150_000, volume: int = 27) -> bytes:
    """Cubin of what a layer launches on compute capability 9.0, pointers aligned to 16 bytes."""
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
    found: bytes = compiled(gather_gemm, constants, types, **options).asm["cubin"]
    return found


@pytest.mark.parametrize(
    ("channels", "by_warpgroups"),
    [(16, False), (64, True), *(pytest.param(c, True, marks=pytest.mark.slow) for c in (128, 256))],
)
def test_layers_from_64_channels_on_multiply_by_warpgroups(
    channels: int, by_warpgroups: bool, tmp_path: Path
) -> None:
    text = disassembled(product_of(channels), tmp_path)
    assert bool(WARPGROUP.search(text)) == by_warpgroups
    assert bool(WARP.search(text)) != by_warpgroups


def test_measurements_know_kernels_by_their_names() -> None:
    kernels = gather_kernel, scatter_kernel, gather_gemm, weight_stationary_kernel
    parts = "gather", "scatter", "products", "products"
    for kernel, part in zip((*kernels, dense_slots_kernel), (*parts, "products"), strict=True):
        assert parts_of_call([(kernel.__name__, 1000.0)])[part] == 1
    for scatter, part in enumerate(("gather", "scatter")):
        name = slots_kernel.repr(SimpleNamespace(constants={"SCATTER": bool(scatter)}))
        assert parts_of_call([(name, 1000.0)])[part] == 1

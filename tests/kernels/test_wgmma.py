"""Hopper's warpgroup products in the machine code of the implicit GEMM; compiled without a GPU."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pcnn.geometry import Kernel
from pcnn.geometry.steps import TILE_ROWS
from pcnn.kernels.gather_gemm import gather_gemm
from pcnn.kernels.gemm_blocks import default_blocks, parts_of
from pcnn.nn import Conv3d
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor
from tests.clouds import surface_grid

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


def compiled(channels: int, rows: int = 150_000, volume: int = 27) -> bytes:
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
    names = gather_gemm.arg_names
    source = ASTSource(
        gather_gemm,
        signature={n: "constexpr" if n in constants else types[n] for n in names},
        constexprs=constants,
        attrs={
            (i,): [["tt.divisibility", 16]]
            for i, name in enumerate(names)
            if types.get(name, "").startswith("*")
        },
    )
    options = {"num_warps": blocks.warps, "num_stages": 3}
    found: bytes = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm[
        "cubin"
    ]
    return found


@pytest.mark.parametrize(
    ("channels", "by_warpgroups"),
    [(16, False), (64, True), *(pytest.param(c, True, marks=pytest.mark.slow) for c in (128, 256))],
)
def test_layers_from_64_channels_on_multiply_by_warpgroups(
    channels: int, by_warpgroups: bool, tmp_path: Path
) -> None:
    text = disassembled(compiled(channels), tmp_path)
    assert bool(WARPGROUP.search(text)) == by_warpgroups
    assert bool(WARP.search(text)) != by_warpgroups


@pytest.mark.gpu
@pytest.mark.parametrize("channels", [64, 128])
def test_the_variant_that_a_layer_launched_multiplies_by_warpgroups(
    channels: int, tmp_path: Path
) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("warpgroup products are Hopper's")
    from pcnn.kernels import gather_gemm as module

    before = {id(one) for one in launched(module)}
    layer = Conv3d(channels, channels, 3, bias=False).cuda().half()
    grid = Planner(layer)(surface_grid(60_000).to("cuda"), backward=False)
    assert grid.cached_map(grid, Kernel.of(3)) is not None
    with torch.no_grad():
        layer(SparseTensor(torch.randn(grid.rows, channels, device="cuda").half(), grid))
    new = [one for one in launched(module) if id(one) not in before]
    assert new
    for one in new:
        assert WARPGROUP.search(disassembled(one.asm["cubin"], tmp_path))


def launched(module: Any) -> list[Any]:
    """Compiled kernels that launches of the implicit GEMM have looked up so far."""
    variants = module._LAUNCHER._variants.values()
    return [compiled for variant in variants for compiled, *_ in variant._compiled.values()]

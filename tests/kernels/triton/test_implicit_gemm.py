"""Implicit GEMM over the row lists of tiles, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.dataflows import ConvSpec, Epilogue, OutputStationary  # noqa: E402
from pcnn.geometry import Kernel, KernelMap  # noqa: E402
from pcnn.kernels.gemm_blocks import GemmBlocks  # noqa: E402
from pcnn.kernels.implicit_gemm import launch_implicit_gemm  # noqa: E402
from pcnn.maps import SortedSearch  # noqa: E402
from tests.clouds import surface_grid  # noqa: E402
from tests.tolerance import RELATIVE_RMS, relative_rms  # noqa: E402

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
BLOCKS = GemmBlocks(64, 16, 16, 1, 4, 3)
#: bfloat16 is rounded towards zero by the interpreter, so it is checked on a device.
DTYPES = [torch.float32, torch.float16] + [torch.bfloat16] * (DEVICE == "cuda")
KERNELS = {"submanifold": Kernel.of(3), "strided": Kernel.of(3, 2), "flat": Kernel.of((3, 1, 2))}


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a launch allocates holds NaN."""
    allocate = torch.empty

    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        tensor = allocate(*args, **kwargs)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch, "empty", poisoned)


def make(n: int, kernel: Kernel, transposed: bool = False) -> KernelMap:
    grid = surface_grid(n, batch_size=2).to(DEVICE)
    kernel_map = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    return kernel_map.transpose() if transposed else kernel_map


def check(
    kernel_map: KernelMap,
    dtype: torch.dtype,
    c_in: int,
    c_out: int,
    *,
    blocks: GemmBlocks = BLOCKS,
    groups: int = 1,
    transposed: bool = False,
    mirrored: bool = False,
    sections: bool = False,
    c_skip: int = 0,
    epilogue: Epilogue | None = None,
    out_dtype: torch.dtype | None = None,
) -> None:
    layouts = kernel_map.layout("section_tiles" if sections else "tiles")
    x = torch.randn(kernel_map.n_in, c_in, device=DEVICE).to(dtype)
    skip = torch.randn(kernel_map.n_in, c_skip, device=DEVICE).to(dtype) if c_skip else None
    shape = (c_out // groups, c_in) if transposed else ((c_in + c_skip) // groups, c_out)
    weight = torch.randn(kernel_map.volume, *shape, device=DEVICE).to(dtype)
    spec = ConvSpec(groups, transposed, mirrored, dtype, out_dtype or dtype, epilogue, skip)
    out = launch_implicit_gemm(x, weight, layouts, kernel_map.n_out, spec, blocks)
    exact = spec._replace(compute_dtype=torch.float64, out_dtype=torch.float64)
    exact = exact if skip is None else exact._replace(skip=skip.double())
    wide = x.double(), weight.double(), kernel_map.layout("tiles")
    wanted = OutputStationary().forward(*wide, kernel_map.n_out, exact)
    assert out.shape == wanted.shape == (kernel_map.n_out, c_out)
    assert out.dtype == (out_dtype or dtype)
    assert relative_rms(out, wanted) < RELATIVE_RMS[out.dtype]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("transposed_map", [False, True], ids=["map", "transposed_map"])
def test_any_map_and_any_channels(kernel: Kernel, transposed_map: bool) -> None:
    kernel_map = make(24, kernel, transposed_map)
    for c_in, c_out in ((1, 3), (4, 16), (33, 20)):
        check(kernel_map, torch.float32, c_in, c_out)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("out_dtype", [None, torch.float32], ids=["same", "float32"])
def test_dtypes(dtype: torch.dtype, out_dtype: torch.dtype | None) -> None:
    check(make(50, Kernel.of(3)), dtype, 16, 32, out_dtype=out_dtype)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mirrored", [False, True])
def test_gradients_read_the_same_weight_and_lists(groups: int, mirrored: bool) -> None:
    for kernel in (Kernel.of(3), Kernel.of(2, 2)):
        kernel_map = make(30, kernel)
        check(kernel_map, torch.float32, 24, 20, groups=groups, transposed=True, mirrored=mirrored)
        check(kernel_map, torch.float32, 24, 20, groups=groups, mirrored=mirrored)


@pytest.mark.parametrize("groups", [3, 4, 8])
@pytest.mark.parametrize("transposed", [False, True])
def test_narrow_groups_side_by_side(groups: int, transposed: bool) -> None:
    kernel_map = make(30, Kernel.of(3), transposed)
    for c_in, c_out in ((2, 5), (16, 4)):  # of a group
        sides = c_in * groups, c_out * groups
        check(kernel_map, torch.float16, *sides, groups=groups, transposed=transposed)


@pytest.mark.parametrize(
    "blocks",
    [
        GemmBlocks(128, 16, 16, 1, 4, 3),
        GemmBlocks(32, 32, 32, 1, 1, 5),
        GemmBlocks(128, 32, 16, 4, 2, 4),
        GemmBlocks(64, 16, 64, 1, 4, 4),
        GemmBlocks(64, 16, 64, 3, 4, 4),
    ],
    ids=lambda blocks: blocks.name,
)
@pytest.mark.parametrize("c_in", [4, 16, 40])
def test_every_cut_gives_the_same_sums(blocks: GemmBlocks, c_in: int) -> None:
    check(make(40, Kernel.of(3)), torch.float32, c_in, 40, blocks=blocks)


@pytest.mark.parametrize("channels", [(16, 16), (32, 16), (5, 9)])
@pytest.mark.parametrize("split", [1, 2])
def test_a_skip_connection_follows_the_features(channels: tuple[int, int], split: int) -> None:
    blocks = GemmBlocks(64, 16, 16, split, 4, 3)
    check(make(40, Kernel.of(3)), torch.float16, channels[0], 12, c_skip=channels[1], blocks=blocks)


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("sections", [False, True])
def test_an_epilogue_follows_the_sums(split: int, sections: bool) -> None:
    kernel_map = make(40, Kernel.of(3))
    scale, shift = torch.randn(2, 24, device=DEVICE)
    residual = torch.randn(kernel_map.n_out, 24, device=DEVICE).half()
    blocks = GemmBlocks(64, 16, 16, split, 4, 3)
    for parts in (
        Epilogue(scale, shift, residual, True),
        Epilogue(shift=shift),
        Epilogue(residual=residual),
        Epilogue(relu=True),
    ):
        check(kernel_map, torch.float16, 16, 24, blocks=blocks, sections=sections, epilogue=parts)


@pytest.mark.parametrize("size", [3, (3, 1, 5), 5])
def test_sections_meet_in_the_output(size: Any) -> None:
    kernel_map = make(150 if size == 3 else 60, Kernel.of(size))
    check(kernel_map, torch.float32, 16, 16, sections=True)
    check(kernel_map, torch.float32, 16, 16, sections=True, transposed=True, mirrored=True)


@pytest.mark.parametrize("rows", [0, 1, 128, 129])
def test_few_rows(rows: int) -> None:
    check(make(rows, Kernel.of(3)), torch.float32, 16, 16)
    check(make(rows, Kernel.of(2, 2), transposed=True), torch.float32, 16, 16)

"""Plans and products of millions of sites: linear cost, and no 32-bit number that overflows."""

import pytest
import torch
from torch import Tensor

from pcnn.dataflows import Reference
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import Windowed
from pcnn.models import MinkUNet42
from pcnn.ops import Planner
from tests.maps.growth import SIZES, check, cost, sheet
from tests.maps.test_large_gpu import block, rows_of_interest
from tests.specs import spec_of
from tests.tolerance import RELATIVE_RMS, relative_rms

KERNEL = Kernel.of((1, 1, 3))


def expected(
    x: Tensor, weight: Tensor, grid: VoxelGrid, rows: Tensor, transposed: bool = False
) -> Tensor:
    """Some output rows of a convolution in float64, from the coordinates themselves."""
    out = x.new_zeros(len(rows), weight.shape[1 if transposed else 2], dtype=torch.float64)
    coords = grid.key_format.unpack(grid.keys[rows]).long()
    for slot, offset in enumerate(KERNEL.offsets):
        sign = -1 if transposed else 1
        keys = grid.key_format.pack(coords + sign * torch.tensor((0, *offset), device=x.device))
        place = torch.searchsorted(grid.keys, keys).clamp_(max=grid.rows - 1)
        found = (grid.keys[place] == keys)[:, None]
        matrix = weight[slot].double()
        out += torch.where(found, x[place].double(), 0) @ (matrix.t() if transposed else matrix)
    return out


def products(side: int, channels: int, dtype: torch.dtype, device: str) -> VoxelGrid:
    """Hold the three products of the reference dataflow to some of their rows, one by one."""
    grid = block(side, 1, device, 0.98)
    built = Windowed().build(grid, grid, KERNEL)
    maps: list[KernelMap] = [built, built.transpose()]
    torch.manual_seed(1)
    x = torch.randn(grid.rows, channels, dtype=dtype, device=device)
    weight = torch.randn(KERNEL.volume, channels, channels, device=device).to(dtype)
    rows = rows_of_interest(grid.rows, x.device)[:6000]
    for transposed, kernel_map in zip((False, True), maps, strict=True):
        tensors = list(kernel_map.layout("pairs"))
        out = Reference().forward(
            x, weight, tensors, grid.rows, spec_of(dtype, transposed=transposed)
        )
        assert out.shape == x.shape
        wanted = expected(x, weight, grid, rows, transposed)
        assert relative_rms(out[rows], wanted) < RELATIVE_RMS[dtype]
        del out
    # a gradient of few rows, the last ones among them, makes the outer products small sums
    rows = torch.unique(torch.cat([rows[:100], rows[2000:2100], rows[4000:4100]]))
    grad = torch.zeros_like(x)
    grad[rows] = torch.randn(len(rows), channels, device=device).to(dtype)
    outer = Reference().weight_grad(
        x, grad, list(built.layout("pairs")), spec_of(dtype, torch.float32)
    )
    coords = grid.key_format.unpack(grid.keys[rows]).long()
    for slot, offset in enumerate(KERNEL.offsets):
        keys = grid.key_format.pack(coords + torch.tensor((0, *offset), device=device))
        place = torch.searchsorted(grid.keys, keys).clamp_(max=grid.rows - 1)
        inputs = torch.where((grid.keys[place] == keys)[:, None], x[place].double(), 0)
        wanted = inputs.t() @ grad[rows].double()
        assert relative_rms(outer[slot], wanted) < RELATIVE_RMS[torch.float32]
    return grid


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_checks_of_large_features_on_small_ones(dtype: torch.dtype) -> None:
    assert products(8, 16, dtype, "cpu").rows > 400


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_features_of_more_than_two_to_the_31_elements(dtype: torch.dtype) -> None:
    channels = 256
    # 8.5 M rows: 9 GB of float32, of which the dataflow holds four or five at once
    grid = products(206, channels, dtype, "cuda")
    print(f"{grid.rows} rows, {torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most")
    assert grid.rows * channels > 1 << 31


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("start", ["cells", "sites"])
def test_plans_grow_linearly(start: str, backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # memory that is poisoned takes launches of its own
    planner = Planner(MinkUNet42(width=0.125), ("table", "steps"))
    costs = []
    for n in SIZES:
        cells = sheet(n, "cuda")[torch.randperm(n, device="cuda")]
        grid = planner.voxelize(cells, 2)
        keys, bound = grid.keys.clone(), grid.bound
        assert len(keys) == n
        del grid

        def call(cells: Tensor = cells, keys: Tensor = keys, bound: int = bound) -> VoxelGrid:
            if start == "cells":
                return planner.voxelize(cells, 2, backward=backward)
            return planner(VoxelGrid(keys, 2, bound), backward)

        costs.append(cost(n, call))
    check(costs)

"""Promises of engines about bits, on layers whose quickest dataflow adds by atomics."""

import pytest
import torch

from pcnn.geometry import grid_of_cells
from pcnn.nn import Conv3d
from pcnn.ops import resolve
from pcnn.tensor import SparseTensor

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("engine", ["auto", "torchsparse", "minuet", "reference"])
@pytest.mark.parametrize("size", [3, 5])
def test_a_deterministic_engine_gives_identical_bits(engine: str, size: int) -> None:
    torch.manual_seed(0)
    cells = torch.randint(0, 100, (20_000, 3), device="cuda")  # sparse: 3 of 125 slots a row
    grid = grid_of_cells(cells)
    layer = Conv3d(16, 24, size, engine=resolve(engine, deterministic=True)).cuda()
    x = torch.randn(grid.rows, 16, device="cuda", requires_grad=True)
    runs = []
    for _ in range(3):
        with torch.autocast("cuda", torch.float16):
            out = layer(SparseTensor(x, grid)).features
        gradients = torch.autograd.grad(out.float().square().sum(), (x, *layer.parameters()))
        runs.append((out, *gradients))
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))

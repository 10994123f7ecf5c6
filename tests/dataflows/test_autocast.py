"""A dataflow is told its dtypes; an autocast around it changes none of them."""

from __future__ import annotations

import pytest
import torch

import pcnn
from pcnn.dataflows import Dataflow, OutputStationary
from pcnn.geometry import Kernel
from pcnn.maps import SortedSearch
from pcnn.nn import Conv3d
from pcnn.ops import Engine, conformance
from pcnn.ops.conformance_cases import Case
from tests.clouds import surface_grid
from tests.engines import DATAFLOWS
from tests.tolerance import RELATIVE_RMS, relative_rms

WITH_TILES: list[Dataflow] = [*DATAFLOWS, OutputStationary()]
dataflows = pytest.mark.parametrize("dataflow", WITH_TILES, ids=lambda d: d.name)


@dataflows
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_products_keep_their_dtypes(dataflow: Dataflow, groups: int, dtype: torch.dtype) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        conformance.check_products(dataflow, Case(Kernel.of(3), 4, 6, dtype, groups))


@dataflows
@pytest.mark.parametrize("groups", [1, 2])
def test_layers_train_under_autocast(dataflow: Dataflow, groups: int) -> None:
    grid = surface_grid(100)
    layer = Conv3d(4, 6, 3, groups=groups, engine=Engine("tested", SortedSearch(), dataflow))
    x = torch.randn(grid.rows, 4, requires_grad=True)
    gradients = []
    for dtype in (torch.bfloat16, torch.float64):
        layer.to(torch.float32 if dtype == torch.bfloat16 else dtype).zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = layer(pcnn.SparseTensor(x if dtype == torch.bfloat16 else x.double(), grid))
            assert y.features.dtype == dtype
            y.features.sum().backward()  # nobody should, but one may: under autocast too
        assert layer.weight.grad is not None
        gradients.append(layer.weight.grad)
    assert relative_rms(*gradients) < RELATIVE_RMS[torch.bfloat16]

from __future__ import annotations

import pytest
import torch

from pcnn.dataflows import Reference
from pcnn.dataflows.outer_by_row import OuterByRow
from pcnn.geometry import Kernel
from pcnn.maps import SortedSearch
from tests.clouds import surface_grid


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (2, 2)])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_it_is_the_reference(
    size: int, stride: int, groups: int, mirrored: bool, device: str
) -> None:
    grid, kernel = surface_grid(150).to(device), Kernel.of(size, stride)
    built = SortedSearch().build(grid, grid.strided(kernel), kernel)
    x = torch.randn(built.n_in, 4, dtype=torch.float64, device=device)
    grad = torch.randn(built.n_out, 6, dtype=torch.float64, device=device)
    out = [
        flow.vvor(
            x,
            grad,
            [tensor for name in flow.needs_vvor for tensor in built.layout(name)],
            groups,
            torch.float64,
            torch.float64,
            mirrored=mirrored,
        )
        for flow in (OuterByRow(), Reference())
    ]
    torch.testing.assert_close(*out)

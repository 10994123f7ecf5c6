"""Plans of millions of sites cost linearly."""

import pytest
import torch
from torch import Tensor

from pcnn.geometry import VoxelGrid
from pcnn.models import MinkUNet42
from pcnn.ops import Planner
from tests.ops.growth import SIZES, check, cost, sheet


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

from __future__ import annotations

import pytest
import torch

from pcnn.dataflows import Blocked, Reference
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.settings import dataflow_of, settings_of
from pcnn.dataflows.tuning_table import PRODUCTS
from pcnn.geometry import Kernel
from pcnn.maps import SortedSearch
from pcnn.ops.candidates import default_candidates
from pcnn.ops.fan_in import random_map
from pcnn.ops.layer_products import LayerCall
from tests.clouds import surface_grid


def call(dtype: torch.dtype = torch.float16) -> LayerCall:
    grid, kernel = surface_grid(100), Kernel.of(3)
    return LayerCall(SortedSearch().build(grid, grid, kernel), 32, 48, 1, dtype)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerCall, "device", torch.device("cuda:0"))


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_cpu_has_one_candidate(product: str) -> None:
    assert default_candidates(call(), product) == (Blocked(),)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.usefixtures("on_gpu")
def test_candidates_of_a_gpu(product: str, reproducible: bool) -> None:
    found = default_candidates(call(), product, reproducible)
    assert len(found) > 1
    assert len({one.name for one in found}) == len(found)
    assert all(dataflow_of(settings_of(one)) == one for one in found)
    if reproducible:
        assert all(one.deterministic for one in found)


@pytest.mark.usefixtures("on_gpu")
def test_float64_is_served_by_the_reference() -> None:
    assert default_candidates(call(torch.float64), "forward") == (Reference(),)


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.usefixtures("on_gpu")
def test_maps_whose_slots_hold_several_inputs(product: str, reproducible: bool) -> None:
    shared = LayerCall(random_map(20, 30, 27, 200), 32, 48, 1, torch.float16)
    found = default_candidates(shared, product, reproducible)
    assert RowStationary() in found
    assert all(one.deterministic or not reproducible for one in found)
    for one in found:  # none of them asks for a table
        for side in (shared.kernel_map, shared.kernel_map.transpose()):
            side.layouts((*one.needs, *one.needs_vvor))

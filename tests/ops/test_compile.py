"""Under torch.compile layers on sites break the graph, and compute what they do without it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch._dynamo.utils import counters

import pcnn
from pcnn.models import MinkUNet42
from tests.clouds import surface_grid


@pytest.mark.parametrize("training", [False, True])
def test_compiled_networks_compute_what_they_do_otherwise(
    training: bool,
) -> None:
    torch._dynamo.reset()
    counters.clear()
    net = MinkUNet42(width=0.125).double().train(training)
    twin = copy.deepcopy(net)
    compiled = torch.compile(net, backend="aot_eager")
    for points in (300, 200):
        found = []
        for run in (compiled, twin):
            grid = surface_grid(points, batch_size=2)
            drawn = torch.randn(grid.rows, 4, generator=torch.Generator().manual_seed(points))
            with torch.set_grad_enabled(training):
                found.append(run(pcnn.SparseTensor(drawn.double(), grid)).features)
        torch.testing.assert_close(*found)
        if training:
            for out in found:
                out.square().sum().backward()
            for own, other in zip(net.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(own.grad, other.grad)
    assert counters["graph_break"]

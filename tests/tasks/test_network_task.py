"""Common to all tasks: compiled networks keep their names, weights and results."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch

import pcnn
from pcnn.losses import CrossEntropy
from pcnn.runtime.compile import compile
from pcnn.tasks import SegmentationTask, network_task
from pcnn.tasks.schedules import constant
from tests.clouds import surface_grid


def task(compiled: bool) -> SegmentationTask:
    torch.manual_seed(0)
    optimizer: Any = partial(torch.optim.SGD, lr=0.1)
    net = pcnn.nn.Sequential(pcnn.nn.Conv3d(4, 2, 3), torch.nn.BatchNorm1d(2))
    return SegmentationTask(net, "ab", CrossEntropy(), optimizer, constant, compiled=compiled)


def test_a_compiled_network_trains_alike_under_its_own_names(monkeypatch: Any) -> None:
    torch._dynamo.reset()
    graphs: list[Any] = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(network_task, "compile", partial(compile, backend=counted))
    plain, compiled = task(False), task(True)
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    grid = surface_grid(80)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)
    target = torch.randint(0, 2, (grid.rows,))
    for one in (plain, compiled):
        one.loss(one(x), target).backward()
    assert len(graphs) == 1
    for ours, theirs in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert len(list(compiled.parameters())) == len(list(plain.parameters()))
    # a copy, as a moving average makes one, compiles a network of its own
    twin = copy.deepcopy(compiled)
    torch.nn.init.zeros_(twin.net[0].weight)  # type: ignore[index, union-attr, arg-type]
    assert not torch.equal(twin(x), compiled(x))

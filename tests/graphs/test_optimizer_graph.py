"""Updates as graphs are those of the eager fused optimiser, whatever changes between them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from pcnn.graphs.capture import CudaGraphs, Work
from pcnn.graphs.optimizer_graph import OptimizerGraph, update_as_graph
from tests.graphs.graphed import rerun
from tests.waits import nothing_waits

KINDS = {
    "sgd": partial(SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": partial(Adam, lr=0.1, amsgrad=True, weight_decay=0.01),
    "adamw": partial(AdamW, lr=0.1, weight_decay=0.01),
}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Training:
    """Parameters of odd sizes in two groups, whose gradients lie in the same memory."""

    def __init__(self, make: Any, device: str, graph: bool, **options: Any) -> None:
        torch.manual_seed(0)
        shapes = (3, 5, 7), (4,), (), (65, 3)
        self.parameters = [nn.Parameter(torch.randn(shape).to(device)) for shape in shapes]
        self.memory = [torch.zeros_like(each) for each in self.parameters]
        self.learns = [True] * len(shapes)
        groups = [{"params": self.parameters[:2]}, {"params": self.parameters[2:], "lr": 0.03}]
        self.optimizer: Optimizer = make(groups, fused=True, **options)
        self.captures = 0
        self.device = device
        self.graph: OptimizerGraph | None = None
        if graph:
            self.graph = update_as_graph(self.optimizer, self.capture)
            assert self.graph is not None
        # rates on the device are float32
        self.schedule = LambdaLR(self.optimizer, lambda step: 1 / (1 + step))
        self.rounded = not graph

    def capture(self, work: Work) -> Work:
        self.captures += 1
        return CudaGraphs(torch.device("cuda"))(work) if self.device == "cuda" else rerun(work)

    def step(self, number: int, **told: Any) -> None:
        draw = torch.Generator().manual_seed(number)
        with torch.no_grad():
            each = zip(self.parameters, self.memory, self.learns, strict=True)
            for parameter, memory, learns in each:
                memory.copy_(torch.randn(parameter.shape, generator=draw))
                parameter.grad = memory if learns else None
        for name, value in told.items():
            setattr(self.optimizer, name, torch.tensor(value, device=self.device))
        rates = [group["lr"] for group in self.optimizer.param_groups]
        assert all(isinstance(rate, float) for rate in rates)
        if self.rounded:
            for group in self.optimizer.param_groups:
                group["lr"] = float(np.float32(group["lr"]))
        self.optimizer.step()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            assert group["lr"] == (float(np.float32(rate)) if self.rounded else rate)
            group["lr"] = rate
        for name in told:
            delattr(self.optimizer, name)
        self.schedule.step()

    def state(self) -> list[Tensor]:
        states = self.optimizer.state_dict()["state"]
        tensors = [value for key in sorted(states) for value in states[key].values()]
        return [*(each.detach().clone() for each in self.parameters), *tensors]


def assert_equal(one: Training, other: Training) -> None:
    pairs = list(zip(one.state(), other.state(), strict=True))
    assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaled", [False, True])
def test_twenty_steps_are_bitwise_those_of_the_eager_optimiser(
    device: str, kind: str, scaled: bool
) -> None:
    plain, graph = (Training(KINDS[kind], device, each) for each in (False, True))
    for number in range(20):
        told = {"found_inf": float(number in (3, 4, 11))}
        if scaled:
            told["grad_scale"] = 2.0 ** (number // 5)
        for training in (plain, graph):
            training.step(number, **told)
        assert_equal(plain, graph)
    assert graph.captures == 1
    assert graph.graph is not None
    assert graph.graph.replays == 18


def elsewhere(training: Training, number: int) -> None:
    training.memory = [torch.zeros_like(each) for each in training.memory]


def states(training: Training, number: int) -> None:
    training.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))


def decay(training: Training, number: int) -> None:
    training.optimizer.param_groups[1]["weight_decay"] = 0.1


def missing(training: Training, number: int) -> None:
    training.learns[0] = number > 4


@pytest.mark.parametrize(
    ("change", "when", "captures"),
    [
        (decay, (4,), [0, 1, 1, 1, 1, 2, 2, 2]),
        (states, (4,), [0, 1, 1, 1, 1, 2, 2, 2]),
        (missing, (3, 4, 5), [0, 1, 1, 1, 2, 2, 3, 3]),
        (elsewhere, range(8), [0] * 8),  # gradients that move at every step
    ],
)
def test_what_a_graph_holds_may_change(
    device: str, change: Any, when: Sequence[int], captures: list[int]
) -> None:
    plain, graph = (Training(KINDS["adamw"], device, each) for each in (False, True))
    found, kept = [], []
    for number in range(8):
        for training in (plain, graph):
            kept.append(training.memory)
            if number in when:
                change(training, number)
            training.step(number)
        found.append(graph.captures)
        assert_equal(plain, graph)
    assert found == captures


def test_other_optimisers_are_left_as_they_are() -> None:
    class Own(SGD):
        pass

    for make, options in (
        (SGD, {}),
        (Own, {"fused": True}),
        (AdamW, {"betas": (torch.tensor(0.9), torch.tensor(0.99)), "capturable": True}),
    ):
        optimizer = make([nn.Parameter(torch.ones(3))], lr=0.1, **options)  # type: ignore[operator]
        assert update_as_graph(optimizer, rerun) is None
        assert "step" not in vars(optimizer)


@pytest.mark.gpu
def test_no_step_waits_and_the_scaler_of_torch_is_served() -> None:
    plain, graph = (Training(KINDS["adamw"], "cuda", each) for each in (False, True))
    scalers = [torch.amp.GradScaler("cuda", init_scale=4.0) for _ in range(2)]

    def step(number: int, training: Training, scaler: torch.amp.GradScaler) -> None:
        scaler.scale(torch.ones((), device="cuda"))
        for parameter, memory in zip(training.parameters, training.memory, strict=True):
            memory.fill_(4.0 * number if number != 5 else torch.inf)
            parameter.grad = memory
        scaler.step(training.optimizer)
        scaler.update()

    for number in range(10):
        for training, scaler in zip((plain, graph), scalers, strict=True):
            if number > 3:
                with nothing_waits():
                    step(number, training, scaler)
            else:
                step(number, training, scaler)
    plain_state, state = plain.state(), graph.state()
    for one, other in zip(plain_state, state, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    assert graph.captures == 1
    assert scalers[0].get_scale() == scalers[1].get_scale() == 2.0

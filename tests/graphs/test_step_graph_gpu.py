"""Real CUDA graphs of steps: what their work gives without a graph, and no waits."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.graphs.capture import CudaGraphs
from pcnn.graphs.step_graph import StepGraphs
from pcnn.losses import CrossEntropy, LovaszSoftmax
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C
from pcnn.ops import resolve
from pcnn.tensor import SparseTensor
from tests.clouds import surface_grid
from tests.tolerance import relative_rms
from tests.waits import nothing_waits

pytestmark = [pytest.mark.gpu, pytest.mark.long]


def batch(n: int, seed: int) -> tuple[SparseTensor, Tensor]:
    torch.manual_seed(seed)
    grid = surface_grid(n, seed=seed).to("cuda")
    labels = torch.randint(0, 5, (grid.rows,), device="cuda")
    labels[:7] = 255
    return SparseTensor(torch.randn(grid.rows, 4, device="cuda"), grid), labels


@pytest.mark.parametrize("half", [False, True])
def test_replays_give_what_their_work_and_plain_steps_give(half: bool) -> None:
    torch.manual_seed(0)
    net: Any = MinkUNet42(4, 5, 0.5, resolve("auto", deterministic=True)).cuda()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    parameters = list(net.parameters())

    def learn(inputs: Sequence[SparseTensor], beside: Mapping[str, Tensor]) -> dict[str, Tensor]:
        logits, labels = net(inputs[0]).features, beside["labels"]
        return {"loss": CrossEntropy()(logits, labels) + LovaszSoftmax()(logits, labels)}

    graphs = StepGraphs(learn, parameters, net.planner, CudaGraphs())

    def step(x: SparseTensor, labels: Tensor) -> Tensor:
        loss = graphs.forward([x], {"labels": (labels, 255)})["loss"]
        graphs.backward(256 * loss)
        return loss.detach()

    def found(plain: bool, n: int, seed: int, waits: bool = True) -> list[Tensor]:
        """Loss, gradients and buffers of a step from the same state."""
        x, labels = batch(n, seed)
        net.planner(x.geometry, True)
        net.load_state_dict(state)
        with torch.autocast("cuda", torch.float16, enabled=half, cache_enabled=False):
            if plain:
                loss = learn([x], {"labels": labels})["loss"]
                gradients = list(torch.autograd.grad(256 * loss, parameters))
                return [loss.detach(), *gradients, *net.buffers()]
            if waits:
                loss = step(x, labels)
            else:
                with nothing_waits():
                    loss = step(x, labels)
        kept = [piece.clone() for piece in graphs.gradients.pieces]
        return [loss, *kept, *(buffer.clone() for buffer in net.buffers())]

    # round-off moves single gradients of a deep network far more than all of them together
    tolerance = 5e-2 if half else 1e-3

    def assert_close(some: list[Tensor], others: list[Tensor], factor: float = 1.0) -> None:
        assert relative_rms(some[0], others[0]) < tolerance * factor
        one, other = (
            torch.cat([part.flatten().double() for part in all_]) for all_ in (some, others)
        )
        assert relative_rms(one, other) < 5 * tolerance * factor

    eager = found(False, 3000, 1)
    for waits in (True, False):
        assert_close(found(False, 3000, 1, waits), eager, 0.1)
    # another cloud of this size, in the same graph
    loss, *_ = found(False, 2900, 2, waits=False)
    assert len(graphs.rooms) == 1
    graphs.gradients.hand_over(False)
    own = [parameter.grad for parameter in parameters if parameter.grad is not None]
    expected, *others = found(True, 2900, 2)
    assert_close([loss, *own], [expected, *others[: len(own)]])


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["descriptors", "classes"])
def test_losses_between_the_graphs(kind: str, half: bool) -> None:
    torch.manual_seed(0)
    engine = resolve("auto", deterministic=True)
    net: Any = ResUNetBN2C(4, 16, 3, width=0.5, engine=engine)
    if kind == "classes":
        net = ResNet18(4, 5, 0.25, engine=engine)
    net = net.cuda()
    parameters, inputs_of = list(net.parameters()), {"descriptors": 2, "classes": 1}[kind]

    def learn(inputs: Sequence[SparseTensor], beside: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = (net(x) for x in inputs)
        return {str(n): y if kind == "classes" else y.features for n, y in enumerate(found)}

    def loss_of(found: Sequence[Tensor]) -> Tensor:
        return 64 * sum(((one.float() - 0.1).square().mean() for one in found), torch.zeros(()))

    graphs = StepGraphs(learn, parameters, net.planner, CudaGraphs())
    autocast = torch.autocast("cuda", torch.float16, enabled=half, cache_enabled=False)

    def graphed(inputs: list[SparseTensor]) -> tuple[Tensor, list[Tensor]]:
        with autocast:
            figures = graphs.forward(inputs, {}).values()
            loss = loss_of([one[: len(x.features)] for one, x in zip(figures, inputs, strict=True)])
        graphs.backward(loss)
        graphs.gradients.hand_over(False)
        return loss.detach(), [p.grad for p in parameters if p.grad is not None]

    def plain(inputs: list[SparseTensor]) -> tuple[Tensor, list[Tensor]]:
        with autocast:
            loss = loss_of(list(learn(inputs, {}).values()))
        return loss.detach(), list(torch.autograd.grad(loss, parameters))

    tolerance = 5e-2 if half else 1e-3
    for number, n in enumerate((3000, 2900, 2950, 2980)):
        inputs = [batch(n, 10 * number + k)[0] for k in range(inputs_of)]
        state = {name: value.clone() for name, value in net.state_dict().items()}
        loss, gradients = graphed(inputs)
        buffers = [buffer.clone() for buffer in net.buffers()]
        net.load_state_dict(state)
        expected, others = plain(inputs)
        assert relative_rms(loss[None], expected[None]) < tolerance
        for some, rest in ((gradients, others), (buffers, list(net.buffers()))):
            one, other = (
                torch.cat([part.flatten().double() for part in all_]) for all_ in (some, rest)
            )
            assert relative_rms(one, other) < 5 * tolerance
    assert graphs.replays == 2


def test_graphs_that_go_leave_room_for_others() -> None:
    """Where the only graph goes, and where garbage that holds one would be collected."""
    capture, memory = CudaGraphs(), torch.zeros(1000, device="cuda")

    def work() -> dict[str, Tensor]:
        kept: list[Any] = []
        for _ in range(20_000):  # garbage enough for all generations
            kept = [kept[:0]]
            kept.append(kept)
        return {"sum": memory.add_(1).sum()}

    for number in range(3):
        held: list[Any] = [capture(work)]
        held.append(held)
        del held
        assert float(capture(work)()["sum"]) == 1000 * (number + 1)
        gc.collect()

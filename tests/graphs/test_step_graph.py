"""Steps in memory of fixed size have the losses, gradients and statistics of plain ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.geometry import grid_of_cells
from pcnn.graphs.buckets import Edges
from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.input_sizes import NoFixedSize, Sizes
from pcnn.graphs.step_graph import StepGraphs
from pcnn.losses import CrossEntropy, LovaszSoftmax
from pcnn.ops import resolve
from pcnn.tensor import SparseTensor
from tests.graphs.graphed import cloud, network, rerun

EDGES = Edges(128, 1.3)


class Learner:
    """A network with a loss, and how often it ran."""

    def __init__(self, **options: Any) -> None:
        self.net: Any = network(**options).double()
        self.runs: list[int] = []  # rows

    def learn(
        self, inputs: Sequence[SparseTensor], beside: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        (x,), labels = inputs, beside["labels"]
        self.runs.append(x.geometry.rows)
        logits = self.net(x).features
        loss = CrossEntropy()(logits, labels) + LovaszSoftmax()(logits, labels)
        return {"loss": loss, "taught": (labels != 255).sum()}

    def graphs(self, **options: Any) -> StepGraphs:
        parameters = list(self.net.parameters())
        return StepGraphs(self.learn, parameters, self.net.planner, rerun, EDGES, **options)

    def sides(
        self, inputs: Sequence[SparseTensor], beside: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Of two inputs, one after the other."""
        self.runs.append(inputs[1].geometry.rows)
        return {str(number): self.net(x).features for number, x in enumerate(inputs)}

    def state(self) -> list[Tensor]:
        return [*(p.grad for p in self.net.parameters()), *self.net.buffers()]


def step(graphs: StepGraphs, x: SparseTensor, labels: Tensor, share: int = 1) -> dict[str, Tensor]:
    figures = graphs.forward([x], {"labels": (labels, 255)})
    graphs.backward(figures["loss"] / share)
    return figures


def batch(points: int, seed: int) -> tuple[SparseTensor, Tensor]:
    x, labels = cloud(points, seed)
    return x.replace(x.features.double()), labels


CLOUDS = [(150, 1), (150, 2), (300, 4), (40, 6), (150, 3)]  # points, seed


@pytest.mark.parametrize("share", [1, 2])
def test_steps_equal_plain_ones(share: int) -> None:
    mine, plain = Learner(), Learner()
    graphs = mine.graphs()
    for number, (points, seed) in enumerate(CLOUDS):
        x, labels = batch(points, seed)
        figures = step(graphs, x, labels, share)
        loss = plain.learn([x], {"labels": labels})["loss"]
        if number % share == 0:
            mine.net.zero_grad()
            plain.net.zero_grad()
        graphs.gradients.hand_over(share > 1)
        (loss / share).backward()
        assert figures["taught"] == (labels != 255).sum()
        torch.testing.assert_close(figures["loss"].detach(), loss.detach(), rtol=1e-12, atol=0)
        for own, other in zip(mine.state(), plain.state(), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-11)
    assert sorted(room.rows[0] for (room,) in graphs.rooms) == sorted(set(mine.runs))
    assert all(rows % 128 == 0 for rows in mine.runs)


def test_losses_between_the_graphs_of_two_inputs() -> None:
    """Also where a loss leaves an input out, or a step has no backward."""
    mine, plain = Learner(), Learner()
    graphs = StepGraphs(mine.sides, list(mine.net.parameters()), mine.net.planner, rerun, EDGES)

    def loss(found: Sequence[Tensor], number: int) -> Tensor:
        first, second = (one.square().mean() for one in found)
        return first + 2 * second if number != 4 else 3 * first

    for number, (points, seed) in enumerate(2 * CLOUDS):
        inputs = [batch(points, seed)[0], batch(150, seed + 9)[0]]
        found = graphs.forward(inputs, {})
        shown = [found[str(n)][: x.geometry.rows] for n, x in enumerate(inputs)]
        assert all(one.is_leaf and one.requires_grad for one in found.values())
        expected = [plain.net(x).features for x in inputs]
        for own, other in zip(shown, expected, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-11)
        if number == 1:
            continue
        plain.net.zero_grad()
        loss(expected, number).backward()
        graphs.backward(loss(shown, number))
        graphs.gradients.hand_over(False)
        for own, other in zip(mine.state(), plain.state(), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-11)
    assert graphs.replays > 0
    assert {rows % 128 for rows in mine.runs} == {0}


def test_a_batch_that_does_not_fit_gets_memory_that_holds_both() -> None:
    learner = Learner()
    graphs = learner.graphs()
    x, labels = batch(300, 1)
    step(graphs, x, labels)
    ((room,),) = graphs.rooms
    sizes = Sizes.of(learner.net.planner.recipe_on(x.geometry), x)
    assert sizes.fits(room)
    # as many rows in scattered places: more of them on every level below
    cells = torch.arange(x.geometry.rows)[:, None] * torch.tensor([7, 3, 1])
    other = SparseTensor(x.features, grid_of_cells(cells))
    step(graphs, other, labels)
    ((larger,),) = graphs.rooms
    assert larger.rows[0] == room.rows[0]
    assert larger.rows[1] > room.rows[1]
    assert larger.triplets[0] == room.triplets[0]
    assert sizes.fits(larger)


def test_beyond_the_limit_and_on_single_sites_steps_run_on_their_own_tensors() -> None:
    learner = Learner()
    graphs = learner.graphs(most=1)
    for points, seed in ((300, 1), (500, 4)):
        x, labels = batch(points, seed)
        step(graphs, x, labels)
        rows = learner.runs[-1]
    assert rows == x.geometry.rows
    assert len(graphs.rooms) == 1
    x, labels = batch(1, 1)
    step(graphs, x, labels)
    assert learner.runs[-1] == 1


def test_layouts_without_a_fixed_size_run_on_their_own_tensors() -> None:
    learner = Learner()
    for module in learner.net.modules():
        if hasattr(module, "engine"):
            module.engine = resolve("auto")  # blocks, on a CPU
    x, labels = batch(300, 1)
    graphs = learner.graphs()
    step(graphs, x, labels)
    assert not graphs.rooms
    assert learner.runs == [x.geometry.rows]
    recipe = learner.net.planner.recipe_on(x.geometry)
    with pytest.raises(NoFixedSize, match=r"'blocks'.*fixed size; take engine=auto"):
        Sizes.of(recipe, x)


def test_input_that_was_not_planned_is_refused() -> None:
    learner = Learner()
    x, _ = batch(300, 1)
    with pytest.raises(ValueError, match="not planned"):
        Sizes.of(learner.net.planner.recipe, x)
    planned = batch(300, 1)[0]
    learner.net.planner(planned.geometry, True)
    recipe = learner.net.planner.recipe
    fixed = FixedInput(recipe, planned, Sizes.of(recipe, planned).room(EDGES))
    assert fixed.tensor.geometry.count is not None
    assert fixed.tensor.features.shape == (fixed.room.rows[0], 2)

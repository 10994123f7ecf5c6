"""Training steps as two CUDA graphs, forward and backward, with the loss between them.

A graph reads and writes the same memory at every replay. So a batch is planned as without graphs,
ahead of its step on a side stream; its features, geometry, maps and labels are copied to memory of
a fixed size (`pcnn.graphs.fixed_input`), and the forward graph of that size is replayed. A loss is
computed of the figures that it gives, and the backward graph begins from their gradients. A loss
that is device work alone may be one of these figures. Gradients of the parameters appear in memory
that all graphs share. Sizes of all levels and maps are known on the host when a batch has been
planned: whether it fits is known before its step, and what fits nowhere gets memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pcnn.graphs.buckets import Edges
from pcnn.graphs.capture import Capture, Figures, Work
from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.gradients import Gradients
from pcnn.graphs.input_sizes import NoFixedSize, Sizes
from pcnn.graphs.runner import INSIDE
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

#: Figures of planned inputs, and of tensors that belong to the rows of the first one: device work
#: alone, in shapes that follow from those of the arguments. A loss is computed of those that
#: require gradients.
Learn = Callable[[Sequence[SparseTensor], Mapping[str, Tensor]], Figures]

#: Tensors ``[N, ...]`` of the rows of an input, each with what spare rows hold, by name.
Beside = Mapping[str, tuple[Tensor, float]]


@dataclass
class _Place:
    """Memory of one size, and the graphs that work there once they are captured."""

    inputs: tuple[FixedInput, ...]
    forward: Work | None = None
    backward: Work | None = None
    figures: Figures = field(default_factory=dict)  # of the forward graph, on its memory
    starts: Figures = field(default_factory=dict)  # gradients that backward begins from


class StepGraphs:
    """The steps of a training, each in the graphs of its size.

    The first step in memory of a size runs eagerly, the second is captured. Where there is memory
    of `most` sizes already, a batch of another size runs eagerly on its own tensors. So does one
    whose maps have layouts of no fixed size.
    """

    def __init__(
        self,
        learn: Learn,
        parameters: Sequence[nn.Parameter],
        planner: Planner,
        capture: Capture,
        edges: Edges | None = None,
        most: int = 24,
    ) -> None:
        self.gradients = Gradients(parameters)
        self._learn, self._planner, self._capture = learn, planner, capture
        self._most, self._edges = most, edges or Edges()
        self._places: dict[Hashable, _Place] = {}
        self.replays = 0
        # of the last forward: its memory, and figures with and without the path to parameters
        self._place: _Place | None = None
        self._ends: Figures = {}
        self._leaves: Figures = {}

    @property
    def rooms(self) -> list[tuple[Sizes, ...]]:
        """Sizes of the memory that there is: those of every input."""
        return [tuple(one.room for one in place.inputs) for place in self._places.values()]

    def forward(self, inputs: Sequence[SparseTensor], beside: Beside) -> Figures:
        """Compute the figures of a step."""
        self._ends = {}  # no path may end in parameters that was begun on another stream
        for x in inputs:
            self._planner(x.geometry, True)
        place = self._place = self._place_of(inputs)
        if place is None:
            return self._cut(self._run(inputs, {name: own for name, (own, _) in beside.items()}))
        for number, (fixed, x) in enumerate(zip(place.inputs, inputs, strict=True)):
            fixed.take(x, {} if number else beside)
        own, rows = [fixed.tensor for fixed in place.inputs], place.inputs[0].beside
        if not place.starts:
            found = self._cut(self._run(own, rows))
            place.starts = {name: torch.zeros_like(leaf) for name, leaf in self._leaves.items()}
            return found
        if place.forward is not None and place.backward is not None:
            self.replays += 1
        else:  # also where no backward followed the last one: it is captured with its forward

            def work() -> None:
                place.figures = self._run(own, rows)

            place.forward = self._capture(work)
        place.forward()
        return self._cut({name: value.clone() for name, value in place.figures.items()})

    def backward(self, loss: Tensor) -> None:
        """Compute `gradients` of a loss of the figures that the last `forward` gave."""
        place = self._place
        found = torch.autograd.grad(loss, list(self._leaves.values()), allow_unused=True)
        starts = dict(zip(self._leaves, found, strict=True))
        self.gradients.release()
        if place is None:
            self._descend({name: start for name, start in starts.items() if start is not None})
        else:
            for name, start in starts.items():
                own = place.starts[name]
                own.zero_() if start is None else own.copy_(start)
            if place.backward is None and place.forward is not None:
                place.backward = self._capture(lambda: self._descend(place.starts))
            if place.backward is None:
                self._descend(place.starts)
            else:
                place.backward()
        self._ends = {}

    def _place_of(self, inputs: Sequence[SparseTensor]) -> _Place | None:
        """Memory for a batch, made where it is missing; none beyond the limit, or for few rows."""
        recipes = [self._planner.recipe_on(x.geometry) for x in inputs]
        try:
            sizes = [Sizes.of(*pair) for pair in zip(recipes, inputs, strict=True)]
        except NoFixedSize:  # maps of a dense cloud of native points, or of another engine
            return None
        if min(min(one.rows) for one in sizes) < 2:  # norms have no variance there
            return None
        rooms = [one.room(self._edges) for one in sizes]
        key = tuple((room.rows[0], room.form) for room in rooms)
        place = self._places.get(key)
        if place is not None:
            there = [fixed.room for fixed in place.inputs]
            if all(own.fits(room) for own, room in zip(sizes, there, strict=True)):
                return place
            rooms = [room.joined(own) for room, own in zip(rooms, there, strict=True)]
            del self._places[key]
        elif len(self._places) >= self._most:
            return None
        made = (FixedInput(*one) for one in zip(recipes, inputs, rooms, strict=True))
        place = self._places[key] = _Place(tuple(made))
        return place

    def _run(self, inputs: Sequence[SparseTensor], beside: Mapping[str, Tensor]) -> Figures:
        token = INSIDE.set(True)  # the network's own graphs leave these steps alone
        try:
            figures = self._learn(inputs, beside)
        finally:
            INSIDE.reset(token)
        self._ends = {name: value for name, value in figures.items() if value.requires_grad}
        return figures

    def _cut(self, figures: Figures) -> Figures:
        """Figures without their paths to parameters."""
        found = {name: value.detach() for name, value in figures.items()}
        ends = (name for name, value in figures.items() if value.requires_grad)
        self._leaves = {name: found[name].requires_grad_() for name in ends}
        return found

    def _descend(self, starts: Figures) -> None:
        """Write the gradients of the parameters, from those of figures."""
        ends, parameters = [self._ends[name] for name in starts], self.gradients.parameters
        # backward computes in the dtypes of forward
        with torch.autocast(parameters[0].device.type, enabled=False):
            given = list(starts.values())
            self.gradients.write(torch.autograd.grad(ends, parameters, given, allow_unused=True))

"""Training steps as CUDA graphs: forward, loss and backward of a batch in one launch.

A graph reads and writes the same memory at every replay. So a batch is planned as ever, ahead of
its step on a side stream; its features, geometry, maps and labels are copied to memory of a fixed
size (`pcnn.runtime.fixed_input`), the graph of that size is replayed, and gradients appear in
memory that all graphs share. Sizes of all levels and maps are known on the host when a batch has
been planned: whether it fits is known before its step, and what fits nowhere gets memory of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pcnn.ops.plan import Planner
from pcnn.runtime.buckets import Edges
from pcnn.runtime.capture import Capture, Figures
from pcnn.runtime.fixed_input import FixedInput, Sizes
from pcnn.runtime.gradients import Gradients
from pcnn.tensor import SparseTensor

#: Figures of a step, among them `loss`, of a planned input and the labels of its rows: device work
#: alone, in shapes that follow from those of the arguments.
Learn = Callable[[SparseTensor, Tensor], Figures]


@dataclass
class _Place:
    """Memory of one size, and the graph that works there once it is captured."""

    input: FixedInput
    replay: Callable[[], Figures] | None = None
    steps: int = 0


class StepGraphs:
    """The steps of a training, each in the graph of its size.

    The first step in memory of a size runs eagerly, the second is captured. Where there are `most`
    graphs already, a batch of another size runs eagerly on its own tensors.

    Args:
        learn: figures of a step.
        parameters: that learn.
        planner: of the network.
        capture: makes graphs.
        spare_label: label of spare rows, which the loss passes over.
        edges: sizes of memory.
        most: graphs that are kept.

    Attributes:
        gradients: of the last step.
        replays: steps so far in a graph that was there before.
    """

    def __init__(
        self,
        learn: Learn,
        parameters: Sequence[nn.Parameter],
        planner: Planner,
        capture: Capture,
        spare_label: int,
        edges: Edges | None = None,
        most: int = 24,
    ) -> None:
        self.gradients = Gradients(parameters)
        self._learn, self._planner, self._capture = learn, planner, capture
        self._spare_label, self._most = spare_label, most
        self._edges = edges or Edges()
        self._places: dict[Hashable, _Place] = {}
        self.replays = 0

    @property
    def rooms(self) -> list[Sizes]:
        """Sizes of the memory that there is."""
        return [place.input.room for place in self._places.values()]

    def step(
        self,
        x: SparseTensor,
        labels: Tensor,
        scaled: Callable[[Tensor], Tensor],
        kind: Hashable = None,
    ) -> Figures:
        """Run a step; its gradients are in `gradients`.

        Args:
            x: the batch.
            labels: ``[N]`` int64 of its rows.
            scaled: what backward begins from, of the loss.
            kind: all that a graph holds besides: equal where ``scaled`` does the same.

        Returns:
            The figures, detached.

        Raises:
            ValueError: native points, or an engine with layouts that have no fixed size.
        """
        self.gradients.release()
        self._planner(x.geometry, True)
        place = self._place(x, kind)
        if place is None:
            return self._run(x, labels, scaled)
        place.input.take(x, {"labels": (labels, self._spare_label)})
        own, beside = place.input.tensor, place.input.beside["labels"]
        place.steps += 1
        if place.steps == 1:
            return self._run(own, beside, scaled)
        if place.replay is None:
            place.replay = self._capture(lambda: self._run(own, beside, scaled))
        else:
            self.replays += 1
        return place.replay()

    def _place(self, x: SparseTensor, kind: Hashable) -> _Place | None:
        """Memory for a batch, made where it is missing; none beyond the limit, or for few rows."""
        recipe = self._planner.recipe_on(x.geometry)
        sizes = Sizes.of(recipe, x)
        if min(sizes.rows) < 2:  # norms have no variance there
            return None
        room = sizes.room(self._edges)
        key = room.rows[0], room.form, kind
        place = self._places.get(key)
        if place is not None and sizes.fits(place.input.room):
            return place
        if place is not None:
            room = room.joined(place.input.room)
            del self._places[key]
        elif len(self._places) >= self._most:
            return None
        place = self._places[key] = _Place(FixedInput(recipe, x, room))
        return place

    def _run(self, x: SparseTensor, labels: Tensor, scaled: Callable[[Tensor], Tensor]) -> Figures:
        figures = self._learn(x, labels)
        # backward computes in the dtypes of forward
        with torch.autocast(labels.device.type, enabled=False):
            start = scaled(figures["loss"])
            found = torch.autograd.grad(start, self.gradients.parameters, allow_unused=True)
        self.gradients.write(found)
        return {name: value.detach() for name, value in figures.items()}

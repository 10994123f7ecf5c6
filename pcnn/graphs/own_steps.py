"""Training steps of a loop of one's own: forward and backward of a network as two CUDA graphs.

Autograd sees one node, whose inputs are the parameters that the output depends on. A batch is
planned as without graphs, and copied to memory of fixed size (`pcnn.graphs.fixed_input`); running
statistics are those of its true rows. The graphs hold one forward pass at a time: one that comes
before the backward of the first is for others (`pcnn.nn.planned`). What graphs do not hold is
computed anew, eagerly: gradients of gradients, and a second backward of one output.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pcnn.graphs import INSIDE, NOTHING
from pcnn.graphs.automatic import AFTER, MOST, AutocastOf, Graphs, Run
from pcnn.graphs.capture import Capture, CudaGraphs, NoGraph, Work, aside, failure_of
from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.memory import part_of
from pcnn.graphs.outputs import (
    Copies,
    Form,
    Rebuilt,
    check_agreement,
    features_of,
    form_of,
    rows_of,
)
from pcnn.graphs.sizes import Edges, NoFixedSize, Planned, Unfit
from pcnn.graphs.snapshot import NetworkSnapshot, hooked
from pcnn.maps.place import Part, place
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

#: The gradient of a parameter begins at a multiple of so many numbers, where wide reads begin.
ALIGNED = 64
#: Largest difference of all gradients, as a share of their norm, between a graph and eager.
GRADIENTS_AGREE = 0.2


class Gradients:
    """Memory for the gradients of parameters, in one piece for each dtype."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.pieces = self._pieces()
        self._views, self._spare = self._cut(self.pieces)
        self._addresses = [view.data_ptr() for view in self._views]

    def let_go(self) -> None:
        """Move gradients that still lie here to memory of their own: the next step writes here."""
        for parameter, address in zip(self.parameters, self._addresses, strict=True):
            if parameter.grad is not None and parameter.grad.data_ptr() == address:
                parameter.grad = parameter.grad.clone()

    def write(self, found: Sequence[Tensor | None]) -> None:
        """Keep the gradients of a step; ``None`` where its loss does not depend on a parameter.

        All else in the pieces is 0, so that their norm is that of the gradients.
        """
        pairs = list(zip(self._views, found, strict=True))
        gradients = [one for one in found if one is not None]
        others = [view for view, one in pairs if one is None]
        with torch.no_grad():
            torch._foreach_copy_([view for view, one in pairs if one is not None], gradients)
            # numbers between gradients too: clipping to a norm that is no number reaches them
            torch._foreach_zero_([*self._spare, *others])

    def views(self, in_place: bool) -> list[Tensor]:
        """Gradients of all parameters, here or on memory of their own; nothing else holds them."""
        pieces = self.pieces if in_place else [piece.clone() for piece in self.pieces]
        return self._cut(pieces)[0]

    def _pieces(self) -> list[Tensor]:
        sizes: dict[torch.dtype, int] = {}
        for parameter in self.parameters:
            sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + _room(parameter)
        device = self.parameters[0].device
        return [torch.zeros(size, dtype=dtype, device=device) for dtype, size in sizes.items()]

    def _cut(self, pieces: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Views of the pieces, one a parameter, and what lies between them."""
        rest = {piece.dtype: piece for piece in pieces}
        views, spare = [], []
        for parameter in self.parameters:
            piece, own, room = rest[parameter.dtype], parameter.numel(), _room(parameter)
            views.append(piece[:own].view(parameter.shape))
            if room > own:
                spare.append(piece[own:room])
            rest[parameter.dtype] = piece[room:]
        return views, spare


def _room(parameter: nn.Parameter) -> int:
    return -(-parameter.numel() // ALIGNED) * ALIGNED


class StepPlace:
    """Memory of one size of batches, and the graphs that work there."""

    def __init__(self, held: FixedInput, run: Run, modes: AutocastOf, follows: bool) -> None:
        self.held, self._run, self._modes = held, run, modes
        self.leaves: list[Tensor] = []  # what the network computes with, in place of parameters
        features = held.tensor.features.detach().requires_grad_(follows)
        self._input = SparseTensor(features, held.tensor.geometry)
        self._follows = follows
        self.output: Any = None
        self.form: Form = []
        self.starts: list[Tensor] = []  # gradients that backward begins from
        self.features_grad: Tensor | None = None
        self.reached: list[bool] = []  # parameters that the output depends on
        self.graphs: tuple[Work, Work] | None = None

    def forward(self) -> None:
        """Run the network on the memory."""
        with torch.enable_grad(), self._modes.again():
            self.output = self._run(self._input)

    def backward(self, gradients: Gradients) -> None:
        """Write the gradients of the parameters, from those of the output."""
        ends = [one for one in features_of(self.output) if one.requires_grad]
        if not self.starts:
            self.starts = [torch.zeros_like(end) for end in ends]
        inputs = [*([self._input.features] if self._follows else []), *self.leaves]
        with torch.autocast(self._modes.device, enabled=False):
            found = list(torch.autograd.grad(ends, inputs, self.starts, allow_unused=True))
        if self._follows:
            self.features_grad = found.pop(0)
        self.reached = [one is not None for one in found]
        gradients.write(found)


class StepCall:
    """A forward pass by graphs, whose backward may follow."""

    def __init__(
        self, steps: OwnSteps, step_place: StepPlace, given: Planned, model: nn.Module
    ) -> None:
        self.steps, self.place, self.given, self.model = steps, step_place, given, model
        self.modes = AutocastOf(given.x.device.type)
        self.is_pending = True

    def outputs(self) -> tuple[Tensor, ...]:
        """Replay forward; tensors of its output on memory of their own."""
        return self.steps.forward(self.place, self.given)

    def gradients(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of features and parameters."""
        if self.is_pending and not torch.is_grad_enabled():
            self.is_pending = False
            return self.steps.backward(self.place, self.given, grads)
        return self._computed_anew(grads)

    def _computed_anew(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        create = torch.is_grad_enabled()
        parameters, features = self.steps.parameters, self.given.x.features
        inputs = [*([features] if features.requires_grad else []), *parameters]
        token = INSIDE.set(True)
        try:
            with torch.enable_grad(), self.modes.again():
                outputs = features_of(on_copies(self.model, self.given.x))
            pairs = [
                (one, grad)
                for one, grad in zip(outputs, grads, strict=True)
                if one.requires_grad and grad is not None
            ]
            ends, starts = zip(*pairs, strict=True)
            found = torch.autograd.grad(
                ends, inputs, starts, create_graph=create, allow_unused=True
            )
        finally:
            INSIDE.reset(token)
        return list(found) if features.requires_grad else [None, *found]


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, call: StepCall, features: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.call = call
        ctx.set_materialize_grads(False)
        found = call.outputs()
        own = features_of(call.place.output)
        ends = zip(found, own, strict=True)
        ctx.mark_non_differentiable(*(one for one, end in ends if not end.requires_grad))
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.call.gradients(grads)


class OwnSteps(Graphs):
    """The steps of a network in training."""

    def __init__(
        self,
        model: nn.Module,
        capture: Capture | None = None,
        edges: Edges | None = None,
        after: int = AFTER,
        most: int = MOST,
        in_place: bool = False,
    ) -> None:
        super().__init__(model, capture, after, most)
        self._edges, self._in_place = edges or Edges(), in_place
        self.replays = self._before = 0  # and those at the last change of the network
        self._last: weakref.ref[StepCall] | None = None

    def serves(self, x: SparseTensor) -> bool:
        """True if graphs may take this call."""
        last = None if self._last is None else self._last()
        return (last is None or not last.is_pending) and super().serves(x)

    def _answer(self, x: SparseTensor, model: nn.Module, planner: Planner, run: Run) -> Any:
        if self._kept is not None and not self._kept.holds():  # while the device may be busy
            used, self._before = self.replays - self._before, self.replays
            self._note_change(used)
        planner(x.geometry, True)
        recipe = planner.recipe_on(x.geometry)
        given = Planned.of(recipe, x)
        sizes = given.sizes
        if min(sizes.rows) < 2:  # norms have no variance there
            return NOTHING
        room, modes = sizes.room(self._edges), AutocastOf(x.device.type)
        key = room.rows[0], room.form, modes.key, x.features.requires_grad
        own = self.places.get(key)
        if own is None or not sizes.fits(own.held.room):
            if not self._is_due(key):
                return NOTHING
            if own is not None:
                room = room.joined(own.held.room)
                del self.places[key], own
            elif len(self.places) >= self.most:
                self.places.popitem(last=False)
            own = self._made(given, FixedInput(recipe, given, room), model, planner, modes)
            self.places[key], self.reason = own, None
        self.places.move_to_end(key)
        call = StepCall(self, own, given, model)
        found = iter(_Step.apply(call, x.features, *self.parameters))  # type: ignore[no-untyped-call]
        self._last = weakref.ref(call)
        self.replays += 1
        return Rebuilt(found, own.form, given.levels).of(own.output)

    def _made(
        self,
        given: Planned,
        held: FixedInput,
        model: nn.Module,
        planner: Planner,
        modes: AutocastOf,
    ) -> StepPlace:
        """Capture the graphs of a size, and hold them to an eager step."""
        x, device = given.x, given.x.device
        if hooked(model):
            raise NoGraph("a module has hooks, which no graph calls")
        if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
            raise NoGraph("norms over all devices are no device work alone")
        if self._kept is None:
            self._kept = NetworkSnapshot(model, values=False)
            self._capture = CudaGraphs(device) if self._given is None else self._given
            self.parameters = [one for one in model.parameters() if one.requires_grad]
            self.buffers = list(model.buffers())
            # statistics change unseen, as by torch's own norms: backward passes may need them
            self._counters = [one for one in self.buffers if not one.is_floating_point()]
            self._gradients = Gradients(self.parameters)
        self._gradients.let_go()
        # Autograd keeps one end for every parameter, on the stream that used it first: while a loss
        # of the loop is alive, on that of the loop, where a captured backward may not end. And no
        # statistics that it needs may be seen to change. So both are other tensors on one memory.
        leaves = {
            f"network.{name}": one.data.requires_grad_()
            for name, one in model.named_parameters()
            if one.requires_grad
        }
        buffers = {f"network.{name}": one.data for name, one in model.named_buffers()}
        reference = self._model

        def again(fixed: SparseTensor) -> Any:  # no reference to the network, which owns this
            return functional_call(_Unplanned(reference()), {**leaves, **buffers}, (fixed,))

        made = StepPlace(held, again, modes, x.features.requires_grad)
        made.leaves = list(leaves.values())
        backward: Work = lambda: made.backward(self._gradients)  # noqa: E731
        stream = getattr(self._capture, "stream", None)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            held.take(given)
            before = [one.clone() for one in self.buffers]
            try:
                with aside(stream, device):
                    for _ in range(2):  # once outside: what is missing is compiled
                        made.forward()
                        backward()
                made.graphs = self._capture(made.forward), self._capture(backward)
                few = part_of(x.replace(x.features.detach()))
                for one in (x, few):  # the second leaves most rows spare: none may be looked at
                    try:
                        self._check(made, one, model, planner, modes)
                    except (Unfit, NoFixedSize):  # fewer rows may be tiled in other sections
                        held.check()
            except (RuntimeError, IndexError, ValueError) as error:
                raise NoGraph(failure_of(error)) from error
            finally:
                with torch.no_grad():
                    for own, value in zip(self.buffers, before, strict=True):
                        own.data.copy_(value)
        return made

    def _check(
        self,
        made: StepPlace,
        x: SparseTensor,
        model: nn.Module,
        planner: Planner,
        modes: AutocastOf,
    ) -> None:
        """Hold forward and backward to an eager step."""
        planner(x.geometry, True)
        given = Planned.of(made.held.recipe, x)
        if not given.sizes.fits(made.held.room):
            raise Unfit
        with torch.enable_grad(), modes.again():
            wanted = on_copies(model, x)
        made.form = form_of(made.output, made.held.levels, wanted, given.levels)
        outputs = [one for one in features_of(wanted) if one.requires_grad]
        if not outputs:
            raise NoGraph("its output needs no gradient")
        draw = torch.Generator(x.device).manual_seed(0)
        starts = [
            torch.randn(one.shape, generator=draw, device=x.device, dtype=one.dtype)
            for one in outputs
        ]
        exact = torch.autograd.grad(outputs, self.parameters, starts, allow_unused=True)
        check_agreement(list(self.forward(made, given)), features_of(wanted))
        left = iter(starts)
        grads = [next(left) if one.requires_grad else None for one in features_of(wanted)]
        _, *own = self.backward(made, given, grads)
        off = norm = 0.0
        for one, other in zip(own, exact, strict=True):
            if (one is None) != (other is None):
                raise NoGraph("in memory of fixed size it reaches other parameters")
            if one is not None and other is not None:
                off += float((one.double() - other.double()).square().sum())
                norm += float(other.double().square().sum())
        if not off <= GRADIENTS_AGREE**2 * norm:
            raise NoGraph("in memory of fixed size its gradients are others")

    def forward(self, own: StepPlace, given: Planned) -> tuple[Tensor, ...]:
        """Replay forward on a batch; tensors of the output on memory of their own."""
        assert own.graphs is not None
        with torch.no_grad():
            own.held.take(given)
            own.graphs[0]()
            torch.autograd.graph.increment_version(self._counters)  # a replay counts no change
            copies, rows = Copies(), rows_of(own.output, own.form, given.levels)
            found = tuple(copies.of(one.detach(), number) for one, number in rows)
            copies.fill()
        return found

    def backward(
        self, own: StepPlace, call: Planned, grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Replay backward from gradients of an output: of features, and of the parameters."""
        assert own.graphs is not None
        ends = zip(features_of(own.output), grads, strict=True)
        given = [grad for one, grad in ends if one.requires_grad]
        parts = []
        with torch.no_grad():
            self._gradients.let_go()
            for start, grad in zip(own.starts, given, strict=True):
                source = start[:0] if grad is None else grad.to(start.dtype)
                parts.append(Part(start, source, 0))
            place(parts)
            own.graphs[1]()
            pairs = zip(self._gradients.views(self._in_place), own.reached, strict=True)
            found = [one if reached else None for one, reached in pairs]
            features = own.features_grad
            return [None if features is None else features[: len(call.x)].clone(), *found]


class _Unplanned(nn.Module):
    """A network called as a plain module is: its input is planned."""

    def __init__(self, network: nn.Module | None) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: SparseTensor) -> Any:
        return nn.Module.__call__(self.network, x)  # type: ignore[arg-type]


def on_copies(model: nn.Module, x: SparseTensor) -> Any:
    """The output of a network, whose buffers stay as they are."""
    return functional_call(model, {name: one.clone() for name, one in model.named_buffers()}, (x,))

"""Training steps of a loop of one's own: forward and backward of a network as two CUDA graphs.

Autograd sees one node, whose inputs are the parameters that the output depends on. On voxels the
plan of a batch is a graph too (`pcnn.graphs.memory`); what a graph cannot plan is planned before,
and copied to memory of fixed size (`pcnn.graphs.fixed_input`). Running statistics are those of the
true rows. The graphs hold one forward pass at a time: one that comes before the backward of the
first is for others (`pcnn.nn.planned`). What graphs do not hold is computed anew, eagerly:
gradients of gradients, and a second backward of one output.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pcnn.graphs import INSIDE
from pcnn.graphs.automatic import AutocastOf, Call, Changed, Graphs, Left, Place, Run
from pcnn.graphs.capture import CudaGraphs, NoGraph
from pcnn.graphs.fixed_input import FixedInput, NoFixedSize, Planned, Unfit, levels_of, part_of
from pcnn.graphs.memory import memory_for, plans_inside
from pcnn.graphs.outputs import Copies, FixedOutput, Levels, check_agreement, features_of
from pcnn.graphs.snapshot import NetworkSnapshot
from pcnn.maps.place import Part, place
from pcnn.tensor import SparseTensor

#: The gradient of a parameter begins at a multiple of so many numbers, where wide reads begin.
ALIGNED = 64
#: Rows of a level that norms have a variance over.
FEWEST = 2
#: Largest difference of all gradients, as a share of their norm, between a graph and eager.
GRADIENTS_AGREE = 0.2


class Gradients:
    """Memory for the gradients of parameters, in one piece for each dtype."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        #: shapes of the gradients of a dtype, and of the space between them
        self._shapes: dict[torch.dtype, list[Tensor]] = {}
        #: where those of the parameters stand there
        self._places: list[tuple[torch.dtype, int]] = []
        for one in self.parameters:
            own = self._shapes.setdefault(one.dtype, [])
            self._places.append((one.dtype, len(own)))
            own.append(one.new_empty(one.shape, device="meta"))
            if one.numel() % ALIGNED:
                own.append(one.new_empty(-one.numel() % ALIGNED, device="meta"))
        sizes = {t: sum(one.numel() for one in own) for t, own in self._shapes.items()}
        device = self.parameters[0].device
        self._pieces = {t: torch.zeros(size, dtype=t, device=device) for t, size in sizes.items()}
        self._views = self._cut(self._pieces)
        self._addresses = [view.data_ptr() for view in self._views]

    def let_go(self) -> None:
        """Move gradients that still lie here to memory of their own: the next step writes here."""
        for parameter, address in zip(self.parameters, self._addresses, strict=True):
            if parameter.grad is not None and parameter.grad.data_ptr() == address:
                parameter.grad = parameter.grad.clone()

    def write(self, found: Sequence[Tensor | None]) -> None:
        """Keep the gradients of a step; ``None`` where its loss does not depend on a parameter."""
        pairs = [
            (view, one) for view, one in zip(self._views, found, strict=True) if one is not None
        ]
        views, gradients = zip(*pairs, strict=True)
        with torch.no_grad():
            torch._foreach_copy_(views, gradients)

    def views(self, in_place: bool) -> list[Tensor]:
        """Gradients of all parameters, here or on memory of their own; nothing else holds them."""
        pieces = self._pieces
        return self._cut(pieces if in_place else {t: one.clone() for t, one in pieces.items()})

    def _cut(self, pieces: dict[torch.dtype, Tensor]) -> list[Tensor]:
        # by one call: a view for each in Python takes longer than an optimiser's step
        unflatten = torch._C._nn.unflatten_dense_tensors
        cut = {t: unflatten(piece, self._shapes[t]) for t, piece in pieces.items()}
        return [cut[dtype][place] for dtype, place in self._places]


class StepPlace(Place):
    """Memory and graphs of a step."""

    def __init__(
        self, memory: Any, run: Run, modes: AutocastOf, follows: bool, leaves: list[Tensor]
    ) -> None:
        super().__init__(memory, run, modes)
        self._leaves = leaves  # what the network computes with, in place of parameters
        self._follows = follows
        self._features: Tensor  # of the input
        self.starts: list[Tensor] = []  # gradients that backward begins from
        self.features_grad: Tensor | None = None
        self.reached: list[bool] = []  # parameters that the output depends on

    def forward(self) -> None:
        x: SparseTensor = self.memory.tensor
        self._features = x.features.detach().requires_grad_(self._follows)
        with torch.enable_grad(), self._modes.again():
            self.output = self._run(SparseTensor(self._features, x.geometry))

    def backward(self, gradients: Gradients) -> None:
        """Write the gradients of the parameters, from those of the output."""
        ends = [one for one in features_of(self.output) if one.requires_grad]
        if not ends:
            raise NoGraph("its output needs no gradient")
        if not self.starts:
            self.starts = [torch.zeros_like(end) for end in ends]
        inputs = [*([self._features] if self._follows else []), *self._leaves]
        with torch.autocast(self._modes.device, enabled=False):
            found = list(torch.autograd.grad(ends, inputs, self.starts, allow_unused=True))
        if self._follows:
            self.features_grad = found.pop(0)
        self.reached = [one is not None for one in found]
        gradients.write(found)


class StepCall:
    """A forward pass by graphs, whose backward may follow."""

    levels: Levels  # of the input, once the forward pass is launched

    def __init__(self, steps: OwnSteps, step_place: StepPlace, item: Any, model: nn.Module) -> None:
        self.steps, self.place, self.item, self.model = steps, step_place, item, model
        self.x: SparseTensor = item.x if isinstance(item, Planned) else item
        self.modes = AutocastOf(self.x.device.type)
        self.is_pending = True

    def gradients(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of features and parameters."""
        if self.is_pending and not torch.is_grad_enabled():
            self.is_pending = False
            return self.steps.backward(self.place, len(self.x), grads)
        return self._computed_anew(grads)

    def _computed_anew(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        create = torch.is_grad_enabled()
        parameters, features = self.steps.parameters, self.x.features
        inputs = [*([features] if features.requires_grad else []), *parameters]
        token = INSIDE.set(True)
        try:
            with torch.enable_grad(), self.modes.again():
                outputs = features_of(on_copies(self.model, self.x))
            ends, starts = _paired(outputs, grads)
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
        tensors, call.levels = call.steps.forward(call.place, call.item)
        found = tuple(tensors)
        ends = zip(found, features_of(call.place.output), strict=True)
        ctx.mark_non_differentiable(*(one for one, end in ends if not end.requires_grad))
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.call.gradients(grads)


class OwnSteps(Graphs):
    """The steps of a network in training."""

    def __init__(self, model: nn.Module, in_place: bool = False, **settings: Any) -> None:
        super().__init__(model, **settings)
        self._in_place = in_place
        self._last: weakref.ref[StepCall] | None = None

    def serves(self, x: SparseTensor) -> bool:
        """True if graphs may take this call."""
        last = None if self._last is None else self._last()
        return (last is None or not last.is_pending) and super().serves(x)

    def _start(self, model: nn.Module) -> None:
        self.parameters = [one for one in model.parameters() if one.requires_grad]
        self.buffers = list(model.buffers())
        # as they were before a step whose plan is a graph
        self._buffers_before = [torch.empty_like(one) for one in self.buffers]
        # statistics change unseen, as by torch's own norms: backward passes may need them
        self._counters = [one for one in self.buffers if not one.is_floating_point()]
        self._device = self.parameters[0].device
        self._kept = NetworkSnapshot(model, values=False)
        self._capture = self._given or CudaGraphs(self._device)

    def _item(self, given: Any, call: Call) -> tuple[Hashable, Any] | None:
        if not self._holds():  # looked at while the device may be busy
            raise Changed
        at, follows = given.geometry, given.features.requires_grad
        if at.rows >= FEWEST and plans_inside(given, call.planner, True):
            kind = given.channels, given.dtype, at.batch_size, follows
            return ("voxel", self.edges.above(at.rows), *kind), given
        call.planner(at, True)
        planned = Planned.of(call.planner.recipe_on(at), given)
        if min(planned.sizes.rows) < FEWEST:
            return None
        room = planned.sizes.room(self.edges)
        return ("planned", room.rows[0], room.form, follows), planned

    def _replayed(self, place: StepPlace, item: Any, call: Call) -> Any:
        step = StepCall(self, place, item, call.model)
        found = _Step.apply(step, step.x.features, *self.parameters)  # type: ignore[no-untyped-call]
        self._last = weakref.ref(step)
        return place.fixed.rebuilt(found, step.levels)

    def _made(self, given: Any, item: Any, before: Any, call: Call) -> tuple[StepPlace, Any]:
        """Capture the graphs of a size, and hold them to an eager step."""
        model = call.model
        if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
            raise NoGraph("norms over all devices are no device work alone")
        if not self.places:
            self._gradients = Gradients(self.parameters)
        self._gradients.let_go()
        call.planner(given.geometry, True)
        sites = levels_of(call.planner.recipe_on(given.geometry), given)
        if min(level.rows for level in sites) < FEWEST:
            raise Left
        held = memory_for(item, given, call.planner, call.planner, self.edges, before, True)
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

        follows = given.features.requires_grad
        made = StepPlace(held, again, call.modes, follows, list(leaves.values()))
        backward = partial(made.backward, self._gradients)
        kept = list(map(Part, self._buffers_before, self.buffers))

        def plan() -> None:
            held.plan()
            place(kept)

        plans = () if isinstance(held, FixedInput) else (plan,)
        with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
            before = [one.clone() for one in self.buffers]
            try:
                self._captured(made, item, *plans, made.forward, backward)
                few = part_of(given.replace(given.features.detach()))
                for one in (given, few):  # the second leaves most rows spare: none may be looked at
                    try:
                        self._check(made, one, call)
                    except (Unfit, NoFixedSize, Left):  # fewer rows may be in other sections
                        held.check()
            finally:
                with torch.no_grad():
                    for own, value in zip(self.buffers, before, strict=True):
                        own.data.copy_(value)
        self.replays += 1
        return made, self._replayed(made, item, call)

    def _check(self, made: StepPlace, x: SparseTensor, call: Call) -> None:
        """Hold forward and backward to an eager step."""
        found = self._item(x, call)
        if found is None:
            raise Left
        with torch.enable_grad(), call.modes.again():
            wanted = on_copies(call.model, x)
        levels = levels_of(call.planner.recipe_on(x.geometry), x)
        made.fixed = FixedOutput(made.output, made.memory.levels, wanted, levels)
        draw = torch.Generator(x.device).manual_seed(0)
        grads = [
            torch.randn(one.shape, generator=draw, device=x.device, dtype=one.dtype)
            if one.requires_grad
            else None
            for one in features_of(wanted)
        ]
        ends, starts = _paired(features_of(wanted), grads)
        exact = torch.autograd.grad(ends, self.parameters, starts, allow_unused=True)
        check_agreement(self.forward(made, found[1])[0], features_of(wanted))
        _, *own = self.backward(made, len(x), grads)
        off = norm = 0.0
        for one, other in zip(own, exact, strict=True):
            if (one is None) != (other is None):
                raise NoGraph("in memory of fixed size it reaches other parameters")
            if one is not None and other is not None:
                off += float((one.double() - other.double()).square().sum())
                norm += float(other.double().square().sum())
        if not off <= GRADIENTS_AGREE**2 * norm:
            raise NoGraph("in memory of fixed size its gradients are others")

    def forward(self, own: StepPlace, item: Any) -> tuple[list[Tensor], Levels]:
        """Replay forward on a batch; tensors of the output on memory of their own, and levels."""
        with torch.no_grad():
            reading = self.plan(own, item)
            own.graphs[-2]()
            torch.autograd.graph.increment_version(self._counters)  # a replay counts no change
            copies = Copies()
            sites_of = own.memory.sites(item, own.fixed.wanted, copies)
            numbers = reading()  # waits for the plan, while the device computes
            try:
                rows = own.memory.rows(item, numbers)
                if min(rows) < FEWEST:
                    raise Left
                levels = sites_of(rows, numbers)
            except Exception:
                if numbers:
                    place(list(map(Part, self.buffers, self._buffers_before)))
                raise
            found = own.fixed.copies(own.output, copies, levels)
            copies.fill()
            return found, levels

    def plan(self, own: StepPlace, item: Any) -> Callable[[], list[int]]:
        """Take a batch and replay its plan, if that is a graph; what reads the plan's report."""
        own.memory.take(item)
        for plan in own.graphs[:-2]:
            plan()
        return self._reading(own)

    def backward(
        self, own: StepPlace, rows: int, grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Replay backward from gradients of an output: of features, and of the parameters."""
        ends = zip(features_of(own.output), grads, strict=True)
        given = [grad for one, grad in ends if one.requires_grad]
        parts = []
        with torch.no_grad():
            self._gradients.let_go()
            for start, grad in zip(own.starts, given, strict=True):
                source = start[:0] if grad is None else grad.to(start.dtype)
                parts.append(Part(start, source, 0))
            place(parts)
            own.graphs[-1]()
            pairs = zip(self._gradients.views(self._in_place), own.reached, strict=True)
            found = [one if reached else None for one, reached in pairs]
            features = own.features_grad
            return [None if features is None else features[:rows].clone(), *found]


def _paired(outputs: Sequence[Tensor], grads: Sequence[Tensor | None]) -> Any:
    """Outputs that backward begins from, and their gradients."""
    ends = zip(outputs, grads, strict=True)
    return zip(*(one for one in ends if one[0].requires_grad and one[1] is not None), strict=True)


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

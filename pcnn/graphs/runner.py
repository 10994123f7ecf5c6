"""A network in inference as CUDA graphs, one pair for every size of inputs.

The first graph makes levels and maps, the second runs the layers. While it does, the host reads how
many sites there were, and sees whether the network has changed: of what did not fit, or belonged to
other weights, nothing is handed out.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any

import torch
from torch import nn

from pcnn.graphs.automatic import Call, Changed, Graphs, Place
from pcnn.graphs.capture import CudaGraphs, NoGraph
from pcnn.graphs.fixed_input import FixedInput, NoFixedSize, Planned, Unfit, part_of
from pcnn.graphs.memory import memory_for, plans_inside
from pcnn.graphs.outputs import Copies, FixedOutput, check_agreement
from pcnn.graphs.snapshot import NetworkSnapshot, Snapshot
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

#: Norms keep their parameters in float32 where a network is run in half precision.
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


class Runner(Graphs):
    """Calls of one network without gradients, on sparse tensors, from several streams."""

    dtype: torch.dtype | None = None  # of a copy of the network; None: the network as it is

    def adopt(self, model: nn.Module) -> None:
        """Take the network as it is now: what was captured before belongs to other weights."""
        with self._lock:
            self.release()
            tensors = [*model.parameters(), *model.buffers()]
            self._device = tensors[0].device
            with torch.inference_mode(False), torch.no_grad():
                self.net = own_network(model, self.dtype)
            planner = getattr(self.net, "planner", None)
            self.planner = planner if isinstance(planner, Planner) else Planner(self.net)
            if Snapshot.is_possible(tensors):
                self._kept = NetworkSnapshot(model)

    def _start(self, model: nn.Module) -> None:
        self.adopt(model)
        if self._kept is None:
            raise NoGraph("its parameters are of a kind whose changes are not seen")
        if self._device.type != "cuda" and self._given is None:
            raise NoGraph(f"CUDA graphs need a CUDA device, but the network is on {self._device}")
        self._capture = self._given or CudaGraphs(self._device)

    def _item(self, given: Any, call: Call) -> tuple[Hashable, Any] | None:
        at = given.geometry
        if not at.rows or at.count is not None:
            return None
        kind = given.channels, given.dtype, at.batch_size
        if plans_inside(given, call.planner, False):
            return ("voxel", self.edges.above(at.rows), *kind), given
        call.planner(at, False)
        planned = Planned.of(call.planner.recipe_on(at), given, backward=False)
        room = planned.sizes.room(self.edges)
        return ("planned", room.rows[0], room.form), planned

    def _tensor(self, given: Any, planner: Planner) -> SparseTensor:
        """The input of the network, planned."""
        planner(given.geometry, False)
        x: SparseTensor = given
        return x

    def _part(self, given: Any) -> Any:
        """A few rows of an input, in whose memory most are spare then."""
        return part_of(given)

    def _memory(self, item: Any, x: SparseTensor, planner: Planner, before: Any) -> Any:
        """Memory for a planned input, and for all that fits the room before."""
        return memory_for(item, x, planner, self.planner, self.edges, before)

    def _made(self, given: Any, item: Any, before: Any, call: Call) -> tuple[Place, Any]:
        x = self._tensor(given, call.planner)
        with torch.inference_mode(False), torch.no_grad():
            memory = self._memory(item, x, call.planner, before)
            place = Place(memory, self.net, call.modes)
            plans = () if isinstance(memory, FixedInput) else (memory.plan,)
            self._captured(place, item, *plans, place.forward)
        output = self._checked(place, given, call)
        try:
            self._checked(place, self._part(given), call)  # no spare rows may be looked at
        except (Unfit, NoFixedSize):  # fewer rows may be tiled in other sections
            memory.check()
        return place, output

    def _checked(self, place: Place, given: Any, call: Call) -> Any:
        """The eager output of an input, which that of the graphs is held to."""
        x = self._tensor(given, call.planner)
        found = self._item(given, call)
        if found is None:
            raise Unfit
        wanted = call.run(x)
        sites = self.planner.recipe_on(x.geometry).levels_of(x.geometry)
        place.fixed = FixedOutput(place.output, place.memory.levels, wanted, sites)
        check_agreement(self._replayed(place, found[1], call), wanted)
        return wanted

    def _replayed(self, place: Place, item: Any, call: Call) -> Any:
        on_device = self._device.type == "cuda"
        stream = torch.cuda.current_stream(self._device) if on_device else None
        if stream is not None and self._done is not None:
            stream.wait_event(self._done)
        memory, fixed = place.memory, place.fixed
        memory.take(item)
        try:
            *plans, forward = place.graphs
            for plan in plans:
                plan()
            reading = self._reading(place)
            forward()
            copies = Copies()  # with spare rows: all is launched before the host waits
            sites_of = memory.sites(item, fixed.wanted, copies)
            tensors = fixed.copies(place.output, copies)
            copies.fill()
            if not self._holds():  # looked at while the device computes
                raise Changed
            numbers = reading()
            return fixed.rebuilt(tensors, sites_of(memory.rows(item, numbers), numbers))
        finally:
            if stream is not None:
                self._done = self._done or torch.cuda.Event()
                self._done.record(stream)


def own_network(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """A copy of a network, on the same weights or on copies in a dtype; norms keep theirs.

    Layers keep tensors computed from weights (`FoldedNorm`) and drop them when the network is
    switched to training or back. Graphs read them at every replay, so they belong to a copy that
    nothing else switches.
    """
    if dtype is None:
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        return copy.deepcopy(model, shared)
    own = copy.deepcopy(model)
    for module in own.modules():
        if not isinstance(module, _NORMS):
            module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t, recurse=False)
    return own

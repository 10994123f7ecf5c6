"""What a network does: calls of its convolution layers, and the kernels that it launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.func import functional_call

from pcnn.geometry import KernelMap
from pcnn.graphs.fixed_input import Edges, NoFixedSize, Planned
from pcnn.graphs.memory import memory_for, plans_inside
from pcnn.graphs.outputs import features_of
from pcnn.kernels.recorded import Launch, recorded
from pcnn.nn.conv import Convolution, ConvTranspose3d, convolutions
from pcnn.nn.planned import PlannedModule
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor


class ObservedCall(NamedTuple):
    """A call of a convolution layer that has just returned."""

    name: str  # of the layer in the network
    layer: Convolution  # the layer
    args: tuple[Any, ...]  # of the call
    kwargs: dict[str, Any]  # of the call
    out: SparseTensor  # its result

    @property
    def x(self) -> SparseTensor:
        """Input of the call."""
        found: SparseTensor = self.args[0] if self.args else self.kwargs["x"]
        return found

    @property
    def kernel_map(self) -> KernelMap | None:
        """The kernel map the layer has used, from the side it read; ``None`` for a linear layer."""
        layer, source, target = self.layer, self.x.geometry, self.out.geometry
        turned = isinstance(layer, ConvTranspose3d)
        if turned:
            source, target = target, source
        builder = layer.engine.builder_of(source.name)
        found = source.cached_map(target, layer.kernel, builder)
        return None if found is None else found.transpose() if turned else found


def inputs(model: nn.Module, loader: Iterable[Any], samples: int) -> Iterator[SparseTensor]:
    """The first inputs of a loader that have sites, on the device and in the dtype of a model."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(1))
    tensors = (sparse_of(batch) for batch in loader)
    for x in islice((x for x in tensors if x.geometry.rows), samples):
        x = x.to(parameter.device)
        yield x.replace(x.features.to(parameter.dtype))


def sparse_of(batch: Any) -> SparseTensor:
    """The sparse tensor of a batch; see `inputs`."""
    first = batch[0] if isinstance(batch, tuple | list) and batch else batch
    found = first if isinstance(first, SparseTensor) else getattr(first, "tensor", None)
    if not isinstance(found, SparseTensor):
        raise TypeError(
            f"a batch of type {type(batch).__name__} holds no SparseTensor; give one, an object "
            "with one as .tensor, or a tuple that begins with either"
        )
    return found


def run_observed(
    model: nn.Module, x: SparseTensor, observe: Callable[[ObservedCall], None]
) -> None:
    """Run a network in evaluation mode and without gradients, watching its convolutions."""

    def hook_of(name: str) -> Callable[..., None]:
        return lambda *call: observe(ObservedCall(name, *call))

    with evaluation(model), torch.no_grad():
        # unwatched at first: a network that plans for itself begins with a dry run on two voxels
        model(x)
        handles = [
            layer.register_forward_hook(hook_of(name), with_kwargs=True)
            for name, layer in convolutions(model).items()
        ]
        try:
            model(x)
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without graphs; every module's own mode comes back."""
    flags = [(module, module.training) for module in model.modules()]
    graphs = [(one, one.graphs) for one in model.modules() if isinstance(one, PlannedModule)]
    model.eval()
    for network, _ in graphs:
        network.graphs = False
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training
        for network, own in graphs:
            network.graphs = own


def launches_of(net: nn.Module, inputs: Sequence[SparseTensor], backward: bool) -> list[Launch]:
    """Variants of Triton kernels that a network launches on these inputs.

    The network runs as usual, under the autocast and in the mode that are set. Only these kernels
    do not run: they are written down. So all later values have the right shapes and meaningless
    values. Weights, buffers, gradients and generators stay as they are.
    """
    devices = sorted({x.features.get_device() for x in inputs if x.features.is_cuda})
    # backward in this thread: it is the one whose launches are written down
    here = torch.autograd.set_multithreading_enabled(False)
    with recorded() as launches, torch.random.fork_rng(devices), here:
        for x in inputs:
            if backward:
                _run_both_ways(net, x)
            else:
                with torch.no_grad():
                    net(x)
    return list(launches)


def in_fixed_memory(net: nn.Module, x: SparseTensor) -> SparseTensor:
    """An input as a step in a CUDA graph gets it: in memory of fixed size, with spare rows."""
    own = getattr(net, "planner", None)
    planner = own if isinstance(own, Planner) else Planner(net)
    planner(x.geometry, True)
    inside = plans_inside(x, planner, True)
    try:
        item = x if inside else Planned.of(planner.recipe_on(x.geometry), x)
    except NoFixedSize:  # such steps run eagerly
        return x
    held = memory_for(item, x, planner, planner, Edges(), None, True)
    held.take(item)
    if inside:
        held.plan()
    fixed: SparseTensor = held.tensor
    return fixed


def _run_both_ways(net: nn.Module, x: SparseTensor) -> None:
    # running means of norms would take in what the kernels have not written
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    with torch.enable_grad():
        found = functional_call(net, buffers, (x,))
        sums = [out.float().sum() for out in features_of(found) if out.requires_grad]
        if weights and sums:
            torch.autograd.grad(sums, weights, allow_unused=True)

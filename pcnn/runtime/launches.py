"""The launches that a step of a network makes, found out without making them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.func import functional_call

from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.outputs import features_of
from pcnn.graphs.sizes import Edges, NoFixedSize, Sizes
from pcnn.kernels.recorded import Launch, recorded
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor


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
    recipe = (own if isinstance(own, Planner) else Planner(net)).recipe_on(x.geometry)
    try:
        held = FixedInput(recipe, x, Sizes.of(recipe, x).room(Edges()))
    except NoFixedSize:  # such steps run eagerly
        return x
    held.take(x)
    return held.tensor


def _run_both_ways(net: nn.Module, x: SparseTensor) -> None:
    # running means of norms would take in what the kernels have not written
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    with torch.enable_grad():
        found = functional_call(net, buffers, (x,))
        sums = [out.float().sum() for out in features_of(found) if out.requires_grad]
        if weights and sums:
            torch.autograd.grad(sums, weights, allow_unused=True)

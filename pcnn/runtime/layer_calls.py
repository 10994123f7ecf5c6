"""Calls of the convolution layers of a network, recorded batch by batch, and their products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pcnn.dataflows import ConvSpec, Dataflow, Epilogue, Reference
from pcnn.dataflows.products import Product
from pcnn.dataflows.tuned import signature_of
from pcnn.dataflows.tuning_table import Signature
from pcnn.geometry import KernelMap
from pcnn.nn.conv import Conv3d, ConvTranspose3d
from pcnn.ops.convolution import convolution
from pcnn.tensor import SparseTensor

Convolution = Conv3d | ConvTranspose3d


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
        builder = layer.engine.builder_of(source.name, layer.kernel)
        found = source.cached_map(target, layer.kernel, builder)
        return None if found is None else found.transpose() if turned else found


@dataclass(frozen=True)
class LayerCall:
    """Sizes of one call of a layer: all but the values."""

    kernel_map: KernelMap  # the map, from the side on which the layer reads it
    c_in: int  # input channels
    c_out: int  # output channels
    groups: int  # groups of channels
    dtype: torch.dtype  # that operands are rounded to

    @property
    def device(self) -> torch.device:
        """Where it is computed."""
        return self.kernel_map.in_index.device

    def signature(self, product: str) -> Signature:
        """Key of one of its products in a table."""
        asked = Product(product, self.dtype, self.c_in, self.c_out, self.groups)
        return signature_of(self.device, asked, self.kernel_map.volume)

    def rows(self, product: str) -> int:
        """Rows of a product's output side; of a vvor, of its gradients."""
        return self.kernel_map.n_in if product == "transposed" else self.kernel_map.n_out

    def pairs_per_row(self, product: str) -> float:
        """Mean number of triplets of such a row."""
        return self.kernel_map.triplets / max(1, self.rows(product))


class LayerProduct:
    """One product of a call, on random operands of its shapes."""

    def __init__(self, call: LayerCall, name: str, inference: bool = False) -> None:
        self.call, self.name = call, name
        # gradients of weights are float32 at least, as under autocast
        wide = torch.promote_types(call.dtype, torch.float32)
        self.out_dtype = wide if name == "vvor" else call.dtype
        side = call.kernel_map.transpose() if name == "transposed" else call.kernel_map
        # a symmetric map is its own transpose, its slots mirrored
        self.mirrored = side.symmetric and side.flipped
        self.view = side.transpose() if self.mirrored else side
        random = torch.Generator(call.device).manual_seed(0)

        def operand(*shape: int) -> Tensor:
            values = torch.randn(shape, generator=random, device=call.device)
            return values.to(call.dtype)

        rows, map_ = (self.view.n_in, self.view.n_out), call.kernel_map
        self.x = operand(rows[0], call.c_out if name == "transposed" else call.c_in)
        if name == "vvor":
            self.other = operand(rows[1], call.c_out)
        else:
            scale = (map_.volume * self.x.shape[1] / call.groups) ** -0.5
            shape = map_.volume, call.c_in // call.groups, call.c_out
            self.other = (scale * operand(*shape)).to(call.dtype)
        self.epilogue: Epilogue | None = None
        if inference and name == "forward":
            norm = torch.rand(2, call.c_out, generator=random, device=call.device)
            self.epilogue = Epilogue(scale=norm[0] + 0.5, shift=norm[1], relu=True)

    def prepared(self, dataflow: Dataflow) -> Callable[[], Tensor]:
        """The product by a dataflow, its layouts built;
        what is left is what a layer's call does.
        """
        needs = dataflow.needs_weight_grad if self.name == "vvor" else dataflow.needs
        layouts = [tensor for name in needs for tensor in self.view.layout(name)]
        if self.epilogue is not None:
            return lambda: self._finished(dataflow)
        dtype = self.call.dtype
        return lambda: self._compute(dataflow, layouts, self.x, self.other, dtype)

    @torch.no_grad()
    def _finished(self, dataflow: Dataflow) -> Tensor:
        map_, groups = self.call.kernel_map, self.call.groups
        return convolution(
            self.x, self.other, map_, dataflow, groups=groups, epilogue=self.epilogue
        )

    @property
    def terms(self) -> int:
        """Products in the longest of its sums, at most."""
        if self.name == "vvor":
            return max(self.view.n_in, self.view.n_out)
        return self.view.volume * self.x.shape[1] // self.call.groups

    @cached_property
    def truth(self) -> Tensor:
        """The same of the same operands in float64."""
        layouts = list(self.view.layout("pairs"))
        operands = self.x.double(), self.other.double()
        product = self._compute(Reference(), layouts, *operands, torch.float64)
        return product if self.epilogue is None else self.epilogue.apply(product)

    def _compute(
        self,
        dataflow: Dataflow,
        layouts: list[Tensor],
        x: Tensor,
        other: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        out_dtype = torch.promote_types(dtype, self.out_dtype)
        transposed = self.name == "transposed"
        spec = ConvSpec(self.call.groups, transposed, self.mirrored, dtype, out_dtype)
        if self.name == "vvor":
            return dataflow.weight_grad(x, other, layouts, spec)
        return dataflow.forward(x, other, layouts, self.view.n_out, spec)


def convolutions(model: nn.Module) -> dict[str, Convolution]:
    """The convolution layers of a network by their names."""
    found = model.named_modules()
    return {name: layer for name, layer in found if isinstance(layer, Conv3d | ConvTranspose3d)}


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside `DistributedDataParallel`, whose forward talks to other ranks."""
    inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    assert isinstance(inner, nn.Module)
    return inner


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
    """Evaluation mode; every module's own mode comes back."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


def recorded(model: nn.Module, tensors: Iterable[SparseTensor]) -> dict[str, list[LayerCall]]:
    """Calls of all convolution layers that read a kernel map, by the layers' names."""
    calls: dict[str, list[LayerCall]] = {}

    def observe(call: ObservedCall) -> None:
        kernel_map, layer = call.kernel_map, call.layer
        if kernel_map is not None and kernel_map.triplets:
            channels = layer.in_channels, layer.out_channels, layer.groups
            one = LayerCall(kernel_map, *channels, call.out.features.dtype)
            calls.setdefault(call.name, []).append(one)

    for x in tensors:
        run_observed(model, x, observe)
    return calls

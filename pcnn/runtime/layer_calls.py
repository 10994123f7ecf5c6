"""What the convolution layers of a network are called with, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import nn

from pcnn.geometry import KernelMap
from pcnn.nn.conv import Conv3d, ConvTranspose3d
from pcnn.ops.kernel_maps import found_map
from pcnn.ops.layer_products import LayerCall
from pcnn.tensor import SparseTensor

Convolution = Conv3d | ConvTranspose3d

#: Called after a layer: its name, itself, the arguments and the result of the call.
Observer = Callable[[str, Convolution, tuple[Any, ...], dict[str, Any], SparseTensor], None]


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
    """The first inputs of a loader that have sites, on the device and in the dtype of a model.

    Args:
        model: takes a `SparseTensor`.
        loader: yields sparse tensors, batches that hold one as ``tensor``, or tuples that begin
            with either.
        samples: how many.

    Raises:
        TypeError: a batch without a sparse tensor.
    """
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(1))
    tensors = (sparse_of(batch) for batch in loader)
    for x in islice((x for x in tensors if x.geometry.rows), samples):
        x = x.to(parameter.device)
        yield x.replace(x.features.to(parameter.dtype))


def sparse_of(batch: Any) -> SparseTensor:
    """The sparse tensor of a batch; see `inputs`.

    Raises:
        TypeError: it has none.
    """
    first = batch[0] if isinstance(batch, tuple | list) and batch else batch
    found = first if isinstance(first, SparseTensor) else getattr(first, "tensor", None)
    if not isinstance(found, SparseTensor):
        raise TypeError(
            f"a batch of type {type(batch).__name__} holds no SparseTensor; give one, an object "
            "with one as .tensor, or a tuple that begins with either"
        )
    return found


def run_observed(model: nn.Module, x: SparseTensor, observe: Observer) -> None:
    """Run a network in evaluation mode and without gradients, watching its convolutions."""

    def hook_of(name: str) -> Callable[..., None]:
        def hook(
            layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: SparseTensor
        ) -> None:
            assert isinstance(layer, Conv3d | ConvTranspose3d)
            observe(name, layer, args, kwargs, out)

        return hook

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


def map_of(
    layer: Convolution, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: SparseTensor
) -> KernelMap | None:
    """The kernel map a layer has used, from the side it read; ``None`` for a linear layer."""
    source = (args[0] if args else kwargs["x"]).geometry
    if isinstance(layer, ConvTranspose3d):
        found = found_map(out.geometry, source, layer.kernel, layer.engine)
        return None if found is None else found.transpose()
    return found_map(source, out.geometry, layer.kernel, layer.engine)


def recorded(model: nn.Module, tensors: Iterable[SparseTensor]) -> dict[str, list[LayerCall]]:
    """Calls of all convolution layers that read a kernel map, by the layers' names.

    Args:
        model: takes a `SparseTensor`.
        tensors: its inputs; their geometries live as long as the result.
    """
    calls: dict[str, list[LayerCall]] = {}

    def observe(
        name: str,
        layer: Convolution,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: SparseTensor,
    ) -> None:
        kernel_map = map_of(layer, args, kwargs, out)
        if kernel_map is not None and kernel_map.triplets:
            channels = layer.in_channels, layer.out_channels, layer.groups
            call = LayerCall(kernel_map, *channels, out.features.dtype)
            calls.setdefault(name, []).append(call)

    for x in tensors:
        run_observed(model, x, observe)
    return calls

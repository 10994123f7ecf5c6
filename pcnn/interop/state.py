"""Parameters of whole networks of other packages, by structure."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pcnn.interop.layouts import WeightLayout
from pcnn.nn import Conv3d, ConvTranspose3d


@torch.no_grad()
def load_state(
    network: nn.Module,
    state: Mapping[str, Tensor],
    layout: WeightLayout,
    names: Mapping[str, str] | None = None,
) -> None:
    """Give a network of ours the parameters of one of another package.

    Layers meet in their order: the first of ours that has parameters and the first in ``state``,
    and so on; names need not agree, kinds and shapes must. Where a network was written in another
    order, ``names`` says which layer is which.
    """
    theirs = grouped_state(state)
    ours = layers_of(network)
    if names is None and len(ours) != len(theirs):
        raise ValueError(
            f"the network has {len(ours)} layers with parameters, the state of {layout.package} "
            f"{len(theirs)}; give names, or the part of the state that belongs to the network"
        )
    others = list(theirs) if names is None else [names.get(name, name) for name in ours]
    found: list[tuple[Tensor, Tensor]] = []
    for (name, layer), other in zip(ours.items(), others, strict=True):
        if other not in theirs:
            raise ValueError(f"{name}: the state of {layout.package} has no layer {other}")
        try:
            found += _entries(layer, theirs[other], layout)
        except ValueError as error:
            raise ValueError(f"{name}, from {other}: {error}") from error
    for own, value in found:
        own.copy_(value)


def _entries(
    layer: nn.Module, given: Mapping[str, Tensor], layout: WeightLayout
) -> list[tuple[Tensor, Tensor]]:
    own, left = _own(layer), dict(given)
    found = []
    for entry, tensor in own.items():
        is_kernel = entry == "weight" and isinstance(layer, Conv3d | ConvTranspose3d)
        name = layout.parameter if is_kernel else entry
        value = left.pop(name, None)
        if value is None:
            if entry == "num_batches_tracked":  # older files have none
                continue
            raise ValueError(f"it has no {name}; there are {', '.join(given)}")
        if is_kernel:
            assert isinstance(layer, Conv3d | ConvTranspose3d)
            value = layout.to_ours(value, layer.kernel)
        elif entry == "bias" and value.ndim == 2:  # MinkowskiEngine has [1, C_out]
            value = value.flatten()
        if value.shape != tensor.shape:
            raise ValueError(f"{name} is {list(value.shape)}, ours {list(tensor.shape)}")
        found.append((tensor, value))
    if left:
        raise ValueError(f"ours has no {', '.join(left)}")
    return found


def layers_of(network: nn.Module) -> dict[str, nn.Module]:
    """Modules of a network that have parameters or saved buffers of their own, by name."""
    return {name: layer for name, layer in network.named_modules() if _own(layer)}


def _own(layer: nn.Module) -> dict[str, Tensor]:
    """Parameters, and buffers that are saved, of a module itself."""
    names = [*layer._parameters, *layer._buffers]
    kept = {n: getattr(layer, n) for n in names if n not in layer._non_persistent_buffers_set}
    return {name: value for name, value in kept.items() if value is not None}


def grouped_state(state: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Entries of a state by the name of the layer, then of the entry in it."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        layer, _, entry = name.rpartition(".")
        found.setdefault(layer, {})[entry] = value
    return found

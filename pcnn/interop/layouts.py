"""Convolution weights in other packages, their permutations into ours, and whole networks of them.

All of these packages correlate, as we do: ``in = stride * out + dilation * slot - padding``, and a
transposed or inverse convolution reads the same weight of the same slot backwards. So weights
differ in the order of slots and of axes only. Paddings may differ too, and belong to the layer:
`docs/interop.md` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pcnn.geometry import Kernel
from pcnn.nn import Conv3d, ConvTranspose3d

#: Which axis of a kernel runs fastest in its slots; ``x_if_odd``: x where the number of slots is
#: odd, else z.
Fastest = Literal["x", "z", "x_if_odd"]


@dataclass(frozen=True)
class WeightLayout:
    """How a package keeps the weight of a convolution."""

    package: str  # its name
    licence: str  # SPDX name of its licence
    parameter: str = "weight"  # name of the weight in its layers

    def to_ours(self, weight: Tensor, kernel: Kernel) -> Tensor:
        """Weight ``[K, C_in, C_out]`` of a weight of the package, for a layer's kernel."""
        raise NotImplementedError

    def from_ours(self, weight: Tensor, kernel: Kernel) -> Tensor:
        """Weight in the package's layout, contiguous; the inverse of `to_ours`."""
        raise NotImplementedError


@dataclass(frozen=True)
class SlotsFirst(WeightLayout):
    """``[K, C_in, C_out]``: MinkowskiEngine, TorchSparse and WarpConvNet."""

    fastest: Fastest = "z"  # the axis that runs fastest in the slots
    flat: bool = False  # a kernel of one slot at stride 1 is a matrix [C_in, C_out]

    def to_ours(self, weight: Tensor, kernel: Kernel) -> Tensor:
        plain = weight
        if self.flat and kernel.volume == 1 and weight.ndim == 2:  # of any stride: files have both
            plain = weight[None]
        _require(plain.ndim == 3 and len(plain) == kernel.volume, self.package, weight, kernel)
        return plain[_slots(kernel, self.fastest, inverse=True).to(weight.device)].contiguous()

    def from_ours(self, weight: Tensor, kernel: Kernel) -> Tensor:
        weight = weight[_slots(kernel, self.fastest, inverse=False).to(weight.device)]
        matrix = self.flat and kernel.volume == 1 and not kernel.is_strided
        return (weight[0] if matrix else weight).contiguous()


@dataclass(frozen=True)
class ChannelsAround(WeightLayout):
    """``[C_out, x, y, z, C_in]``: kernel axes by themselves, as spconv 2 and FlexGEMM have it.

    Axes of a kernel are those of the coordinates, in their order: write ``axes="zyx"`` for weights
    of networks whose coordinates are (batch, z, y, x), as OpenPCDet's and mmdetection3d's are.
    """

    axes: Literal["xyz", "zyx"] = "xyz"  # of the coordinates
    mm_of_pointwise: bool = False

    def to_ours(self, weight: Tensor, kernel: Kernel) -> Tensor:
        size = kernel.size if self.axes == "xyz" else kernel.size[::-1]
        here = weight.ndim == 5 and tuple(weight.shape[1:4]) == size
        _require(here, self.package, weight, kernel)
        plain = weight.permute(1, 2, 3, 4, 0)  # [R, S, T, C_in, C_out]
        if self._reinterprets(kernel):
            plain = weight.contiguous().view(1, 1, 1, plain.shape[3], plain.shape[4])
        if self.axes == "zyx":
            plain = plain.permute(2, 1, 0, 3, 4)
        return plain.flatten(0, 2).contiguous()

    def from_ours(self, weight: Tensor, kernel: Kernel) -> Tensor:
        plain = weight.unflatten(0, kernel.size)
        if self.axes == "zyx":
            plain = plain.permute(2, 1, 0, 3, 4)
        theirs = plain.permute(4, 0, 1, 2, 3)
        if self._reinterprets(kernel):
            return weight.contiguous().clone().view(theirs.shape)
        return theirs.contiguous()

    def _reinterprets(self, kernel: Kernel) -> bool:
        return self.mm_of_pointwise and kernel.volume == 1 and not kernel.is_strided


def _slots(kernel: Kernel, fastest: Fastest, inverse: bool) -> Tensor:
    """Our slot (z fastest) of every slot of a package, ``[K]`` int64, or the inverse."""
    own = torch.arange(kernel.volume)
    if fastest == "z" or (fastest == "x_if_odd" and kernel.volume % 2 == 0):
        return own
    if inverse:
        return own.view(kernel.size[::-1]).permute(2, 1, 0).flatten()
    return own.view(kernel.size).permute(2, 1, 0).flatten()


def _require(fits: bool, package: str, weight: Tensor, kernel: Kernel) -> None:
    if not fits:
        raise ValueError(
            f"a weight {list(weight.shape)} is none of {package} for a kernel of size "
            f"{kernel.size}; give the layer it belongs to, and the layout of the package that "
            "wrote it"
        )


#: MinkowskiEngine 0.5: x fastest, ``kernel``; biases are ``[1, C_out]``.
MINKOWSKI = SlotsFirst("MinkowskiEngine", "MIT", "kernel", "x", flat=True)
#: TorchSparse 2: MinkowskiEngine's order for an odd number of slots, ours for an even one. Its
#: even kernels have the layer's padding, in the mode ``hashmap`` always K // 2 - 1.
TORCHSPARSE = SlotsFirst("torchsparse", "MIT", "kernel", "x_if_odd", flat=True)
#: spconv 2 and spconv-triton.
SPCONV = ChannelsAround("spconv", "Apache-2.0", mm_of_pointwise=True)


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

"""What all layers share: their class, their mistakes, a number per axis, a count of sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.geometry import Kernel


class SpconvError(ValueError, AssertionError):
    """A wrong argument; also an `AssertionError`, which spconv raises in its place."""


def require(fits: bool, message: str) -> None:
    """Raise a `SpconvError` with the message unless an argument fits."""
    if not fits:
        raise SpconvError(message)


class SparseModule(nn.Module):
    """A module that takes sparse tensors in a `SparseSequential`."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name
        self._sparse_unique_name = ""


Size = int | Sequence[int]

#: Axes that a tensor may have.
MOST_AXES = 3


def expand_nd(ndim: int, val: Any) -> list[int]:
    """One integer per axis, of one for all or of one each."""
    values = [int(val)] * ndim if isinstance(val, int) else [int(v) for v in val]
    require(len(values) == ndim, f"needs one integer or {ndim}, one per axis, got {val!r}")
    return values


def kernel_of(
    size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Kernel:
    """Kernel of a layer; axes that it does not have are one cell wide."""
    spare = MOST_AXES - len(size)
    ones, zeros = [1] * spare, [0] * spare
    return Kernel.of([*size, *ones], [*stride, *ones], [*dilation, *ones], [*padding, *zeros])


def get_conv_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Spatial shape behind a convolution or pooling; a kernel of -1 covers the whole axis."""
    axes = zip(input_size, kernel_size, stride, padding, dilation, strict=True)
    return [1 if k == -1 else (n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]


def get_deconv_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> list[int]:
    """Spatial shape behind a transposed convolution; as in spconv the dilation does not count."""
    require(min(kernel_size) >= 0, f"kernel_size must be positive, got {list(kernel_size)}")
    axes = zip(input_size, kernel_size, stride, padding, output_padding, strict=True)
    return [(n - 1) * s - 2 * p + k + more for n, k, s, p, more in axes]


#: The buffer's name, as in spconv.
NAME = "max_num_voxels_during_training"


class VoxelCount:
    """Keeps the buffer ``[1]`` int32 of a layer."""

    def __init__(self, layer: nn.Module, device: torch.device | str | None = None) -> None:
        layer.register_buffer(NAME, torch.zeros(1, dtype=torch.int32, device=device))
        self._layer = [layer]  # in a list: a module would take it for a part of itself

    @property
    def buffer(self) -> Tensor:
        """``[1]`` int32, the largest number so far."""
        return self._layer[0].get_buffer(NAME)

    def add(self, sites: int) -> None:
        """Take a number of sites into account."""
        self.buffer.clamp_(min=sites)

    def complete(self, state: Mapping[str, Any], prefix: str) -> None:
        """Add the buffer to a state that has none: checkpoints of layers that did not count."""
        if isinstance(state, dict):
            state.setdefault(prefix + NAME, torch.zeros(1, dtype=torch.int32))


def of_axes(
    module: str,
    name: str,
    base: type[Any],
    axes: int,
    order: Sequence[str],
    required: int,
    **fixed: Any,
) -> type[Any]:
    """A class of layers that knows its number of axes.

    ``order`` names its arguments as spconv orders them, the first of which are ``required``;
    ``fixed`` are those that the class decides about, and defaults of its own.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) > len(order):
            raise TypeError(f"{name} takes {len(order)} arguments, got {len(args)}")
        given = dict(zip(order, args, strict=False))
        twice, unknown = given.keys() & kwargs.keys(), kwargs.keys() - set(order)
        missing = [one for one in order[:required] if one not in {*given, *kwargs}]
        for what, names in (("twice", twice), ("unknown", unknown), ("missing", missing)):
            if names:
                raise TypeError(f"{name}: arguments {what}: {', '.join(sorted(names))}")
        base.__init__(self, axes, **{**fixed, **given, **kwargs})

    doc = f"`{base.__name__}` on {axes} ax{'i' if axes == 1 else 'e'}s: ({', '.join(order)})."
    members = {"__init__": __init__, "__module__": module, "__doc__": doc, "axes": axes}
    return type(name, (base,), members)

"""The one integer relation of a convolution, and the slots of its kernel.

A triplet ``(i, j, k)`` belongs to a convolution exactly when

    in = stride * out + dilation * slot - padding

holds on every axis, with ``in`` and ``out`` in units of the input's and the output's own voxels.
Everything else (builders, oracles, importers of foreign weights) derives from this file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from operator import index
from typing import Any

from pcnn.geometry.packing import SHIFTS, delta

Triple = tuple[int, int, int]


def triple(value: int | Sequence[int], name: str, minimum: int) -> Triple:
    """Return ``value`` as one integer per axis (x, y, z)."""
    plain = value.tolist() if hasattr(value, "tolist") else value  # of NumPy and of torch
    try:
        values = tuple(map(index, plain if isinstance(plain, Sequence) else (plain,) * 3))
    except TypeError:
        values = ()
    if len(values) != 3:
        raise ValueError(f"{name} must be one integer or three (x, y, z), got {value!r}")
    if min(values) < minimum:
        raise ValueError(f"{name} must be at least {minimum} on every axis, got {value!r}")
    return values[0], values[1], values[2]


def usual_padding(size: int, stride: int, dilation: int) -> int:
    """Padding of an axis where none is given.

    An even window begins at its site: its slots cover 0..K-1. An odd one is centred on its site,
    ``dilation * (K - 1) / 2``, as far as it still covers the voxels ``0..stride - 1`` of its coarse
    cell, so at most ``K - stride``. A voxel outside of the window of its own cell would count in
    the next cell only, and nowhere if that is not occupied. So windows whose size equals their
    stride tile space, padding 0. Dilated windows and those shorter than their stride cover no cell,
    and stay centred.
    """
    centred = dilation * (size - 1) // 2 if size % 2 else 0
    return min(centred, size - stride) if dilation == 1 and size >= stride else centred


@dataclass(frozen=True)
class Kernel:
    """Size, stride, dilation and padding of a convolution, one integer per axis (x, y, z).

    Slots are numbered with x slowest and z fastest: ``slot = (x * K_y + y) * K_z + z``.
    Frozen and hashable: it is the key under which a geometry caches its kernel maps.
    """

    size: Triple
    stride: Triple
    dilation: Triple
    padding: Triple
    # asked by every layer of every call, in compiled code too: plain attributes
    #: its fields, and what a geometry keeps its maps under
    key: tuple[Triple, Triple, Triple, Triple] = field(init=False, repr=False, compare=False)
    #: whether the output's tensor stride differs from the input's
    is_strided: bool = field(init=False, repr=False, compare=False)
    #: whether the convolution is a linear layer on every site (one slot, at offset 0)
    is_pointwise: bool = field(init=False, repr=False, compare=False)
    #: whether every input has exactly one output and one slot (size = stride, no padding)
    is_disjoint: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size, stride, ones = self.size, self.stride, (1, 1, 1)
        unpadded = self.padding == (0, 0, 0)
        facts = {
            "key": (size, stride, self.dilation, self.padding),
            "is_strided": stride != ones,
            "is_pointwise": size == stride == ones and unpadded,
            "is_disjoint": size == stride != ones and self.dilation == ones and unpadded,
        }
        self.__dict__.update(facts)

    @staticmethod
    def of(
        size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] | None = None,
    ) -> Kernel:
        """Build a kernel from scalars or triples.

        Args:
            size: kernel size K per axis, at least 1.
            stride: at least 1.
            dilation: at least 1.
            padding: at least 0. ``None`` means `usual_padding` on every axis.

        Raises:
            ValueError: a value out of its range.
        """
        sizes, strides = triple(size, "kernel_size", 1), triple(stride, "stride", 1)
        dilations = triple(dilation, "dilation", 1)
        if padding is None:
            padding = [usual_padding(*axis) for axis in zip(sizes, strides, dilations, strict=True)]
        return _shared(sizes, strides, dilations, triple(padding, "padding", 0))

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash  # every layer of every call looks its map up by the kernel

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, self.key

    @cached_property
    def volume(self) -> int:
        """Number of kernel slots K = K_x K_y K_z."""
        return self.size[0] * self.size[1] * self.size[2]

    @cached_property
    def offsets(self) -> tuple[Triple, ...]:
        """``dilation * slot - padding`` of all K slots, in units of the input's voxels."""
        axes = [
            [d * s - p for s in range(k)]
            for k, d, p in zip(self.size, self.dilation, self.padding, strict=True)
        ]
        return tuple((x, y, z) for x, y, z in itertools.product(*axes))

    @cached_property
    def norms(self) -> tuple[int, ...]:
        """L1 norm of every slot's offset, in units of the input's voxels."""
        return tuple(sum(abs(value) for value in offset) for offset in self.offsets)

    @cached_property
    def reach(self) -> int:
        """Largest absolute offset on any axis, in units of the input's voxels."""
        return max((abs(value) for offset in self.offsets for value in offset), default=0)

    @cache  # noqa: B019  # equal kernels are one object, and stay
    def key_steps(self, spacing: Triple, shifts: Triple = SHIFTS) -> tuple[int, int, int, int]:
        """Key of slot (0, 0, 0) less that of its output, and what a slot along x, y and z adds."""
        origin = [-p * s for p, s in zip(self.padding, spacing, strict=True)]
        axes = zip(self.dilation, spacing, shifts, strict=True)
        x, y, z = ((d * s) << shift for d, s, shift in axes)
        return delta(origin, shifts), x, y, z

    def shape_after(self, shape: Triple) -> Triple:
        """Shape of the output of a dense convolution over a volume of this shape, as in torch."""
        axes = zip(shape, self.size, self.stride, self.dilation, self.padding, strict=True)
        x, y, z = (max(0, (n + 2 * p - d * (k - 1) - 1) // s + 1) for n, k, s, d, p in axes)
        return x, y, z

    def shape_before(self, shape: Triple) -> Triple:
        """Shape of the output of a dense transposed convolution over a volume of this shape."""
        axes = zip(shape, self.size, self.stride, self.dilation, self.padding, strict=True)
        x, y, z = (max(0, (n - 1) * s - 2 * p + d * (k - 1) + 1) for n, k, s, d, p in axes)
        return x, y, z

    @cached_property
    def is_symmetric(self) -> bool:
        """True if slot ``K - 1 - k`` has the offset opposite to slot ``k`` at stride 1."""
        if self.is_strided:
            return False
        centred = (
            2 * p == d * (k - 1)
            for k, d, p in zip(self.size, self.dilation, self.padding, strict=True)
        )
        return all(centred)


@cache
def _shared(size: Triple, stride: Triple, dilation: Triple, padding: Triple) -> Kernel:
    """One object for equal kernels: a look-up that finds itself compares nothing."""
    return Kernel(size, stride, dilation, padding)

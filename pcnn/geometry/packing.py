"""Voxel coordinates as one sorted integer: ``0 | batch 9 | x 18 | y 18 | z 18`` in int64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple


@dataclass(frozen=True)
class KeyFormat:
    """Bit widths of a packed key, batch in the highest bits."""

    batch_bits: int = 9  # clouds a batch may hold are 2 ** batch_bits - 1
    axis_bits: Triple = (18, 18, 18)  # bits of x, y and z; an axis holds -2 ** (bits - 1) .

    def __post_init__(self) -> None:
        if self.batch_bits + sum(self.axis_bits) > 63:
            raise ValueError(f"a packed key has 63 usable bits, {self} asks for more")

    @property
    def shifts(self) -> Triple:
        """Left shift of the x, y and z fields."""
        _, y_bits, z_bits = self.axis_bits
        return y_bits + z_bits, z_bits, 0

    @property
    def batch_shift(self) -> int:
        """Left shift of the batch field."""
        return sum(self.axis_bits)

    @property
    def half(self) -> Triple:
        """Bias of every axis: half its range."""
        x_bits, y_bits, z_bits = self.axis_bits
        return 1 << (x_bits - 1), 1 << (y_bits - 1), 1 << (z_bits - 1)

    @property
    def fields(self) -> tuple[Triple, int]:
        """Widths of the fields, as the struct ``KeyFields`` of device kernels holds them."""
        return self.axis_bits, self.batch_bits

    def cells(self, spacing: Triple, step: Sequence[int]) -> tuple[Any, ...]:
        """The same as the struct ``Cells``: multiples of a step stay multiples once biased."""
        if max(self.axis_bits) > 30:
            raise ValueError(f"cells of keys have at most 30 bits an axis, got {self}")
        bias = [-half % one for half, one in zip(self.half, step, strict=True)]
        return self.shifts, self.axis_bits, spacing, bias, self.batch_shift

    @property
    def sentinel(self) -> int:
        """The largest key, behind all sites: that of a row without one."""
        return (1 << (self.batch_bits + sum(self.axis_bits))) - 1

    @property
    def max_batch(self) -> int:
        """Largest number of clouds in a batch."""
        return max(1, (1 << self.batch_bits) - 1)

    def pack(self, coords: Tensor) -> Tensor:
        """Pack integer coordinates."""
        if coords.ndim != 2 or coords.shape[1] != 4:
            raise ValueError(f"coords must be [N, 4] (batch, x, y, z), got {tuple(coords.shape)}")
        if coords.is_floating_point() or coords.is_complex() or coords.dtype == torch.bool:
            raise ValueError(f"coords must hold integers, got {coords.dtype}")
        fields = coords.to(torch.int64)
        keys = fields[:, 0] << self.batch_shift
        for axis in range(3):
            keys = keys + ((fields[:, axis + 1] + self.half[axis]) << self.shifts[axis])
        return keys

    def unpack(self, keys: Tensor) -> Tensor:
        """Invert `pack`: ``[N]`` int64 keys to ``[N, 4]`` int32 (batch, x, y, z)."""
        fields = [keys >> self.batch_shift]
        for bits, shift, half in zip(self.axis_bits, self.shifts, self.half, strict=True):
            fields.append(((keys >> shift) & ((1 << bits) - 1)) - half)
        return torch.stack(fields, dim=1).to(torch.int32)

    def delta(self, offset: Sequence[int]) -> int:
        """Difference of two keys of one cloud whose coordinates differ by ``offset`` (x, y, z)."""
        return sum(value << shift for value, shift in zip(offset, self.shifts, strict=True))

    def check_bound(self, bound: int, reach: int, subject: str) -> None:
        """Refuse coordinates so large that a neighbour's key would borrow from another field."""
        limit = min(self.half) - 1
        if bound + reach > limit:
            raise ValueError(
                f"{subject}: coordinates reach {bound} voxels and the kernel {reach} more, but a "
                f"packed key holds at most {limit}; centre the cloud or use larger voxels"
            )


#: Format of the keys of every grid by default.
DEFAULT_FORMAT = KeyFormat()

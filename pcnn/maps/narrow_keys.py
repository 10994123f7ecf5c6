"""32-bit keys of one cloud, with as many bits an axis as its extent takes (Spira, section 5.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pcnn.geometry import Kernel, KeyFormat
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.voxel_grid import Box, joint_box

#: Bits of a key, of which the axes share all.
KEY_BITS = 32


@dataclass(frozen=True)
class NarrowKeys:
    """Fields of the 32-bit keys of a cloud."""

    axis_bits: Triple  # bits of x, y and z, x in the highest ones
    low: Triple  # coordinate along x, y and z whose field is 0

    @classmethod
    def of(cls, box: Box, below: Triple, above: Triple) -> NarrowKeys:
        """Fields for a box and what kernels reach beyond it; spare room lies on both sides."""
        low, high = box
        reached = tuple(a - b for a, b in zip(low, below, strict=True))
        sizes = tuple(b + c - a + 1 for a, b, c in zip(reached, high, above, strict=True))
        bits = [max(1, (size - 1).bit_length()) for size in sizes]
        if sum(bits) > KEY_BITS:
            raise ValueError(
                f"32-bit keys: with what the kernel reaches the cloud takes {bits[0]} + {bits[1]} "
                f"+ {bits[2]} bits of x, y and z"
            )
        while sum(bits) < KEY_BITS:  # room for clouds to come, first where there is least
            room = [(1 << b) - size for b, size in zip(bits, sizes, strict=True)]
            bits[room.index(min(room))] += 1
        spare = ((1 << b) - size for b, size in zip(bits, sizes, strict=True))
        x, y, z = (a - room // 2 for a, room in zip(reached, spare, strict=True))
        return cls((bits[0], bits[1], bits[2]), (x, y, z))

    @classmethod
    def for_map(cls, boxes: Iterable[Box], kernel: Kernel, spacing: Triple) -> NarrowKeys:
        """Fields for the sites of a map, and for the queries of its kernel."""
        return cls.of(joint_box(list(boxes)), *reach_of(kernel, spacing))

    def holds(self, box: Box, below: Triple, above: Triple) -> bool:
        """True if a box fits, and what kernels reach beyond it."""
        ends = zip(*box, below, above, self.low, self.axis_bits, strict=True)
        return all(
            first <= low - under and high + over < first + (1 << bits)
            for low, high, under, over, first, bits in ends
        )

    @property
    def key_format(self) -> KeyFormat:
        """Shifts of the fields, as sums of key deltas take them."""
        return KeyFormat(0, self.axis_bits)

    def fields(self, own: KeyFormat) -> tuple[int, ...]:
        """Shifts and bits of the fields of a 64-bit key,
        what is added to each, and where it goes.
        """
        added = (-half - low for half, low in zip(own.half, self.low, strict=True))
        x, y, _ = self.key_format.shifts
        return *own.shifts, *own.axis_bits, *added, x, y


def reach_of(kernel: Kernel, spacing: Triple) -> tuple[Triple, Triple]:
    """How far a kernel's offsets go below and above a site on every axis, in level-0 voxels."""
    axes = zip(kernel.size, kernel.dilation, kernel.padding, strict=True)
    last = ((size - 1) * dilation - padding for size, dilation, padding in axes)
    above = tuple(max(0, end) * step for end, step in zip(last, spacing, strict=True))
    below = tuple(p * step for p, step in zip(kernel.padding, spacing, strict=True))
    return (below[0], below[1], below[2]), (above[0], above[1], above[2])

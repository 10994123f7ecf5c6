"""Slots of pairs within reach on the host; the rules of `pcnn.maps.local_voxels`, axis by axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pcnn.geometry.kernel import Triple
from pcnn.maps.cell_runs import Floats
from pcnn.maps.local_voxels import Edges


def local_slots(
    offsets: Sequence[Floats], edges: Edges, size: Triple, drop: bool
) -> NDArray[np.int32]:
    """What `pcnn.maps.local_voxels.slots_of` yields, as int32.

    A quotient lies in cell c or beyond, rounded half away from zero, if it is c - 1/2 or more: so
    the cell within the kernel is the number of such borders that it has passed.

    Args:
        offsets: ``[T]`` float32 along x, y and z, neighbour minus centre.
        edges: of a kernel cell.
        size: odd kernel size per axis.
        drop: whether neighbours outside the box are left out (-1); otherwise they are clamped.
    """
    slot = np.zeros(len(offsets[0]), np.int32)
    outside = np.zeros(len(slot), np.bool_)
    for offset, edge, cells in zip(offsets, edges, size, strict=True):
        quotient = offset / np.float32(edge)
        slot *= cells
        slot += cells // 2
        for border in range(cells // 2):
            slot += quotient >= np.float32(border + 0.5)
            slot -= quotient <= np.float32(-border - 0.5)
        if drop:
            outside |= np.abs(quotient) >= np.float32(cells // 2 + 0.5)
    if drop:
        slot[outside] = -1
    return slot


def cell_slots(offsets: Sequence[Floats], dilation: Triple, size: Triple) -> NDArray[np.int32]:
    """Slots of voxels, -1 where none lies: ``in - stride * out = dilation * slot - padding``.

    Args:
        offsets: ``[T]`` float32 along x, y and z, in cells, from the kernel's centre.
        dilation: of the kernel.
        size: kernel size per axis.
    """
    slot = np.zeros(len(offsets[0]), np.int32)
    there = np.ones(len(slot), np.bool_)
    for offset, step, cells in zip(offsets, dilation, size, strict=True):
        # from the first slot on, in cells: whole numbers, halves cancel for even sizes
        place = (offset + np.float32(step * (cells - 1) / 2)).astype(np.int32)
        there &= place % step == 0
        slot = slot * cells + place // step
    return np.where(there, slot, -1)

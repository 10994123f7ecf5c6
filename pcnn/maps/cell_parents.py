"""Maps of native points for kernels that tile space (size = stride): nothing is searched.

The local voxelisation of PointCNN++ 3.2, by the coarse cell instead of around its point: a fine
point's place in its coarse cell is its slot, the one point of that cell its output. Read backwards,
the map upsamples onto the fine points.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pcnn.geometry import Kernel, KernelMap, PointSet
from pcnn.maps.assemble import sort_by_slot


@dataclass(frozen=True)
class CellParents:
    """`cell_parents` as a builder: there is nothing to set."""

    name: str = "cell_parents"

    def build(self, source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
        """See `cell_parents`."""
        return cell_parents(source, target, kernel)


def cell_parents(source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
    """Kernel map with one output and one slot for every input point.

    The slot is ``fine cell - stride * coarse cell``. Points of one fine cell share a slot. Where
    the cells are those of voxels, with one point each, the map is the voxel map. The host waits for
    the number of triplets of every slot.

    Args:
        source: input points.
        target: ``source.strided(kernel)``.
        kernel: size = stride, without dilation and padding.

    Returns:
        Triplets by slot, then output row, then input row.

    Raises:
        ValueError: another kernel, or output points that were not made from the input's.
    """
    if not kernel.is_disjoint:
        raise ValueError(
            f"only a kernel that tiles space has a parent for every point, got size {kernel.size}, "
            f"stride {kernel.stride}, dilation {kernel.dilation}, padding {kernel.padding}; search "
            "the neighbours by radius"
        )
    if not source.is_below(target, kernel) or target.inverse is None:
        raise ValueError(
            "the output points were not made from the input points, so their cells need not fit; "
            "give source.strided(kernel)"
        )
    parent = target.inverse  # [N_in]
    step = torch.tensor(kernel.stride, device=source.device)
    place = source.cells[:, 1:] - target.cells[parent, 1:] * step  # [N_in, 3]
    _, size_y, size_z = kernel.size
    slot = (place[:, 0] * size_y + place[:, 1]) * size_z + place[:, 2]
    # with a slot given, rows and their parents ascend together
    rows = torch.arange(source.rows, device=source.device)
    return KernelMap.from_pairs(
        *sort_by_slot(slot, rows, parent, kernel.volume),
        source.rows,
        target.rows,
        one_per_slot=source.one_per_cell,
    )

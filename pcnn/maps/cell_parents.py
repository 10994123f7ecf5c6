"""Maps of native points for kernels that tile space (size = stride): nothing is searched.

The local voxelisation of PointCNN++ 3.2, by the coarse cell instead of around its point: a fine
point's place in its coarse cell is its slot, the one point of that cell its output. Read backwards,
the map upsamples onto the fine points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, PointSet
from pcnn.geometry.layouts import Layout
from pcnn.geometry.packing import KeyFormat
from pcnn.kernels import cuda
from pcnn.maps.assemble import sort_by_slot
from pcnn.maps.device_layouts import DEVICE_LAYOUTS, has_kernels
from pcnn.maps.neighbour_kernels import Sorts
from pcnn.maps.point_memory import PendingMap
from pcnn.maps.table_to_pairs import empty_pairs, scan_counts
from pcnn.maps.triplets_by_row import rows_from_pairs

#: Input rows of a block, as in ``csrc/cell_parents.cu``.
ROWS = 256

#: Tensors of which a kernel takes some.
_WRITTEN = [
    "counts",
    "starts",
    "offsets",
    "in_index",
    "out_index",
    "row_outputs",
    "row_slots",
    "row_offsets",
]


@dataclass(frozen=True)
class CellParents:
    """`cell_parents` as a builder: there is nothing to set."""

    name: str = "cell_parents"

    def build(self, source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
        """See `cell_parents`."""
        return cell_parents(source, target, kernel)

    def counted(
        self, source: PointSet, target: PointSet, kernel: Kernel, sorts: Sorts | None = None
    ) -> PendingMap | None:
        """Count the triplets of the map on a device; nothing waits."""
        parent = _parent(source, target, kernel)
        if not has_kernels(source.device) or not source.rows:
            return None
        parents = _Parents(source.keys, parent, kernel, source.key_format)
        return parents.counted(source.one_per_cell, target.rows)


def cell_parents(source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
    """Kernel map with one output and one slot for every input point.

    The slot is ``fine cell - stride * coarse cell``. Points of one fine cell share a slot. Where
    the cells are those of voxels, with one point each, the map is the voxel map. The host waits for
    the number of triplets of every slot.
    """
    on_device = CellParents().counted(source, target, kernel)
    if on_device is not None:
        return PendingMap.finish_all([on_device], source, source.neighbourhood.memory)[0]
    parent = _parent(source, target, kernel)  # [N_in]
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


def _parent(source: PointSet, target: PointSet, kernel: Kernel) -> Tensor:
    """``[N_in]`` int64 output row of every input."""
    if not kernel.is_disjoint:
        raise ValueError(
            f"only a kernel that tiles space has a parent for every point, got size {kernel.size}, "
            f"stride {kernel.stride}, dilation {kernel.dilation}, padding {kernel.padding}; search "
            "the neighbours by radius"
        )
    above = source.rows_above(target)
    steps = zip(source.tensor_stride, kernel.stride, strict=True)
    if above is None or target.tensor_stride != tuple(t * s for t, s in steps):
        raise ValueError(
            "the output points were not made from the input points by the kernel's stride, so "
            "their cells need not fit; give source.strided(kernel), or a level further up"
        )
    return above


@dataclass(frozen=True)
class _Parents:
    """The map on a device."""

    keys: Tensor  # [N_in] int64 cells of the inputs
    parent: Tensor  # [N_in] int64
    kernel: Kernel
    key_format: KeyFormat

    def counted(self, one_per_cell: bool, n_out: int) -> PendingMap:
        device, n, volume = self.keys.device, self.keys.shape[0], self.kernel.volume
        chunks = -(-n // ROWS)
        counts = torch.empty(2, volume, chunks, dtype=torch.int32, device=device)
        self._launch("count_places", counts=counts[0], starts=counts[1], shared_bytes=4 * volume)
        ends = torch.empty(volume + 1, dtype=torch.int64, device=device)
        scan_counts(counts[0], counts[1], ends)

        def fill(offsets: Tensor) -> KernelMap:
            in_index, out_index = empty_pairs(n, device)
            self._launch(
                "fill_parents",
                counts=counts[0],
                starts=counts[1],
                offsets=ends,
                in_index=in_index,
                out_index=out_index,
            )
            derive: dict[str, Callable[[KernelMap], Layout]] = {
                **DEVICE_LAYOUTS,
                "rows_csr": self._rows,
            }
            built = KernelMap.from_pairs(
                in_index, out_index, offsets, n, n_out, one_per_cell, True, derive=derive
            )
            built.edges.layouts["counts", False] = (ends.diff(),)
            return built

        return PendingMap(ends, fill, (n, n_out))

    def _rows(self, kernel_map: KernelMap) -> Layout:
        """Layout ``rows_csr`` of either side; see `pcnn.geometry.layouts.rows_csr`."""
        if not kernel_map.flipped:
            return rows_from_pairs(kernel_map)
        n, device = self.keys.shape[0], self.keys.device
        outputs, slots = empty_pairs(n, device)
        offsets = torch.empty(n + 1, dtype=torch.int64, device=device)
        self._launch("list_parents", row_outputs=outputs, row_slots=slots, row_offsets=offsets)
        return outputs, slots, offsets

    def _launch(self, name: str, shared_bytes: int = 0, **given: Tensor) -> None:
        """Run a kernel on what it reads and on some of the tensors that the kernels write."""
        n = self.keys.shape[0]
        chunks = -(-n // ROWS)
        cuda.module("cell_parents.cu", self.keys.device).launch(
            name,
            chunks,
            shared_bytes=shared_bytes,
            keys=self.keys,
            parent=self.parent,
            **{**dict.fromkeys(_WRITTEN), **given},
            n=n,
            chunks=chunks,
            bits=self.key_format.axis_bits,
            size=self.kernel.size,
        )

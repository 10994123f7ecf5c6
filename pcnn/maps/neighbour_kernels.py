"""Radius search and local voxelisation on a device, by the kernels of ``csrc/radius_search.cu``.

The same triplets in the same order as `pcnn.maps.radius_pairs` and `pcnn.maps.local_voxels` yield:
whether a pair is within reach, and its slot, are the same float32 expressions. The host waits once,
for the number of triplets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry.kernel import Triple
from pcnn.kernels import cuda, pinned
from pcnn.maps.local_voxels import Edges
from pcnn.maps.radius_pairs import BOX_MARGIN, CELL_MARGIN, Reach
from pcnn.maps.radix_sort import RadixSort, passes_of
from pcnn.maps.table_to_pairs import empty_pairs, scan_counts

#: Bits of a sort key: the cloud, and the number of a cell along every axis.
KEY_BITS = 32

#: Output rows of a block, as in ``csrc/radius_search.cu``.
ROWS = 256

# as in csrc/levels.cu: blocks of a kernel that adds its histogram to the others'
_KEY_BLOCKS = 264

_CELLS = "3d3d3i"
_KEYS = struct.Struct(f"7Pq{_CELLS}0qi0q")
_PLACES = struct.Struct("3Pq0q")
_SEARCH = struct.Struct(f"4P2q{_CELLS}0q3f3f3i2i0q")
_COUNT = struct.Struct("2Pq0q")
_FILL = struct.Struct("9Pq0q")


@dataclass(frozen=True)
class Neighbours:
    """Triplets of a kernel over native points, in two orders.

    Args:
        in_index: ``[T]`` int32 input rows, by slot, then output row, then input row.
        out_index: ``[T]`` int32 output rows in the same order.
        offsets: ``[K + 1]`` int64 on the host, where every slot begins.
        rows_csr: ``in_index [T]``, ``slot [T]`` int32 by output row, then slot, then input row;
            ``row_offsets [N_out + 1]`` int64.
    """

    in_index: Tensor
    out_index: Tensor
    offsets: Tensor
    rows_csr: tuple[Tensor, Tensor, Tensor]


def neighbours(
    source: Tensor,
    source_batch: Tensor,
    centres: Tensor,
    centre_batch: Tensor,
    batch_size: int,
    reach: Reach,
    edges: Edges,
    size: Triple,
    outside: str,
) -> Neighbours:
    """Triplets of an odd kernel around every centre.

    Args:
        source: ``[N, 3]`` float32 input points [m].
        source_batch: ``[N]`` int64 cloud of every input point, below ``batch_size``.
        centres: ``[M, 3]`` float32, where the kernel lies for every output row.
        centre_batch: ``[M]`` int64.
        batch_size: number of clouds.
        reach: ball radius, or half widths of a box [m].
        edges: of a kernel cell [m].
        size: odd kernel size per axis.
        outside: ``clamp`` or ``drop``.
    """
    device, n, m = source.device, source.shape[0], centres.shape[0]
    volume, chunks = size[0] * size[1] * size[2], -(-m // ROWS)
    kernels = cuda.module("radius_search.cu", device)
    source, centres = source.contiguous(), centres.contiguous()
    cells = _cells(reach, batch_size)
    sort = RadixSort.of(n, device)
    passes = passes_of(KEY_BITS)
    pointers = (source.data_ptr(), source_batch.data_ptr(), *sort.pointers)
    blocks = max(1, min(_KEY_BLOCKS, -(-n // ROWS)))
    kernels.launch("cell_keys", blocks, _KEYS.pack(*pointers, n, *cells, passes), device)
    sort.run(passes)
    places = torch.empty(n, 4, dtype=torch.int32, device=device)  # three floats and a row
    arguments = (source.data_ptr(), sort.values.data_ptr(), places.data_ptr(), n)
    kernels.launch("place_points", -(-n // ROWS), _PLACES.pack(*arguments), device)

    limits = reach if isinstance(reach, tuple) else (reach * reach, 0.0, 0.0)
    searched = (places, sort.keys, centres, centre_batch)
    search = _SEARCH.pack(
        *(tensor.data_ptr() for tensor in searched),
        *(n, m),
        *cells,
        *limits,
        *edges,
        *size,
        not isinstance(reach, tuple),
        outside == "drop",
    )
    counts = torch.empty(2, volume, chunks, dtype=torch.int32, device=device)
    sizes = torch.empty(m, dtype=torch.int32, device=device)
    count = _COUNT.pack(counts.data_ptr(), sizes.data_ptr(), chunks)
    kernels.launch("count_neighbours", chunks, search + count, device, shared_bytes=4 * volume)
    ends = torch.empty(volume + 1, dtype=torch.int64, device=device)
    scan_counts(counts[0], counts[1], ends)
    row_offsets = torch.zeros(m + 1, dtype=torch.int64, device=device)
    torch.cumsum(sizes, 0, out=row_offsets[1:])
    offsets = torch.tensor(pinned.read_copy(ends))  # the one wait

    triplets = int(offsets[-1])
    by_slot, by_row = empty_pairs(triplets, device), empty_pairs(triplets, device)
    listed = torch.empty(triplets, dtype=torch.int64, device=device)
    written = (counts[0], counts[1], ends, row_offsets, listed, *by_slot, *by_row)
    fill = _FILL.pack(*(tensor.data_ptr() for tensor in written), chunks)
    kernels.launch("fill_neighbours", chunks, search + fill, device)
    return Neighbours(*by_slot, offsets, (*by_row, row_offsets))


def _cells(reach: Reach, batch_size: int) -> tuple[float | int, ...]:
    """Cells of the search as its kernels take them; sides as in `pcnn.maps.radius_pairs`."""
    widths = reach if isinstance(reach, tuple) else (reach,) * 3
    rest = KEY_BITS - (batch_size - 1).bit_length()
    return (
        *(1 / (2 * width * CELL_MARGIN) for width in widths),
        *(width * BOX_MARGIN for width in widths),
        *((rest + 2) // 3, (rest + 1) // 3, rest // 3),
    )

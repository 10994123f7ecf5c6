"""Radius search and local voxelisation on a device, by the kernels of ``csrc/radius_search.cu``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import Layout
from pcnn.kernels import cuda
from pcnn.maps.pairs import empty_pairs, scan_counts
from pcnn.maps.point_cells import BOX_MARGIN, CELL_MARGIN, Edges, Reach
from pcnn.maps.radix_sort import KEY_BLOCKS, RadixSort, passes_of

SOURCE = "radius_search.cu"

#: Bits of a sort key: the cloud, and the number of a cell along every axis.
KEY_BITS = 32

#: Output rows of a block, as in ``csrc/radius_search.cu``, and threads of its other kernels.
ROWS, THREADS = 32, 256

#: Fields of a struct of the source.
Fields = dict[str, Any]


class Window(NamedTuple):
    """The points around a centre that a kernel sees."""

    reach: Reach  # ball radius, or half widths of a box [m]
    edges: Edges  # of a kernel cell [m]
    size: Triple  # odd kernel size per axis


@dataclass(frozen=True)
class SortedPoints:
    """Points sorted by cells of side 2R, for searches with one reach."""

    places: Tensor  # [N, 4] int32, three floats and the row
    keys: Tensor  # [2, N] int64; the first row is sorted
    cells: Fields  # as kernels take them
    crowd: Tensor  # [1] int64, squares of the numbers of points in these cells, summed

    @classmethod
    def of(cls, points: Tensor, batch: Tensor, batch_size: int, reach: Reach) -> SortedPoints:
        """Sort points."""
        device, n, points = points.device, points.shape[0], points.contiguous()
        kernels, cells = cuda.module(SOURCE, device), _cells(reach, batch_size)
        sort, passes = RadixSort.of(n, device), passes_of(KEY_BITS)
        given: Fields = {"points": points, "batch": batch, "sort": sort.buffers, "n": n}
        blocks = max(1, min(KEY_BLOCKS, -(-n // THREADS)))
        kernels.launch("cell_keys", blocks, **given, cells=cells, passes=passes)
        sort.run(passes)
        places = torch.empty(n, 4, dtype=torch.int32, device=device)
        crowd = torch.zeros(1, dtype=torch.int64, device=device)
        given = {"points": points, "order": sort.values, "keys": sort.keys, "places": places}
        kernels.launch("place_points", -(-n // THREADS), **given, crowd=crowd, n=n)
        return cls(places, sort.keys, cells, crowd)


@dataclass(frozen=True)
class CountedNeighbours:
    """A search that knows how many triplets there are, on the device."""

    ends: Tensor  # [K + 1] int64, where every slot begins
    counts: Tensor  # [2, K, chunks] int32, triplets, and their first position inside the slot
    row_offsets: Tensor  # [N_out + 1] int64
    search: Fields  # of the kernels
    crowd: Tensor  # [2] int64: the triplets, and SortedPoints.crowd

    @classmethod
    def of(
        cls,
        source: SortedPoints,
        centres: Tensor,  # [M, 3] float32, where the kernel lies for every output row; at least one
        batch: Tensor,  # [M] int64
        window: Window,
        most: int = (1 << 63) - 1,
    ) -> CountedNeighbours:
        """Count the triplets of an odd kernel around every centre; nothing waits."""
        (rows, _), device, reach = centres.shape, centres.device, window.reach
        search = {
            "places": source.places,
            "keys": source.keys,
            "centres": centres.contiguous(),
            "batch": batch,
            "n": source.places.shape[0],
            "m": rows,
            "cells": source.cells,
            "limit": reach if isinstance(reach, tuple) else (reach * reach,),
            "edges": window.edges,
            "size": window.size,
            "ball": int(not isinstance(reach, tuple)),
        }
        volume, chunks = math.prod(window.size), -(-rows // ROWS)
        counts = torch.empty(2, volume, chunks, dtype=torch.int32, device=device)
        sizes = torch.empty(rows, dtype=torch.int32, device=device)
        given: Fields = {"search": search, "counts": counts[0], "sizes": sizes, "chunks": chunks}
        limit = {"crowd": source.crowd, "most": most}
        kernels = cuda.module(SOURCE, device)
        kernels.launch("count_neighbours", chunks, shared_bytes=4 * volume, **given, **limit)
        row_offsets = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        torch.cumsum(sizes, 0, out=row_offsets[1:])
        ends = torch.empty(volume + 1, dtype=torch.int64, device=device)
        scan_counts(counts[0], counts[1], ends)
        crowd = torch.cat((row_offsets[-1:], source.crowd))
        return cls(ends, counts, row_offsets, search, crowd)

    def fill(self, triplets: int) -> tuple[Tensor, Tensor, Layout]:
        """``in_index``, ``out_index`` ``[T]`` int32 of so many triplets, and ``rows_csr``."""
        device, chunks = self.ends.device, self.counts.shape[2]
        in_index, out_index = empty_pairs(triplets, device)
        # apart, so that each is freed without the other: steps keep the inputs
        inputs = torch.empty(triplets, dtype=torch.int32, device=device)
        slots = torch.empty(triplets, dtype=torch.int32, device=device)
        cuda.module(SOURCE, device).launch(
            "fill_neighbours",
            chunks,
            search=self.search,
            counts=self.counts[0],
            starts=self.counts[1],
            offsets=self.ends,
            row_offsets=self.row_offsets,
            in_index=in_index,
            out_index=out_index,
            row_in_index=inputs,
            row_slots=slots,
            chunks=chunks,
        )
        return in_index, out_index, (inputs, slots, self.row_offsets)


def _cells(reach: Reach, batch_size: int) -> Fields:
    """Cells of the search as its kernels take them."""
    widths = reach if isinstance(reach, tuple) else (reach,) * 3
    rest = KEY_BITS - (batch_size - 1).bit_length()
    return {
        "inverse": [1 / (2 * width * CELL_MARGIN) for width in widths],
        "reach": [width * BOX_MARGIN for width in widths],
        "bits": ((rest + 2) // 3, (rest + 1) // 3, rest // 3),
    }


#: Sorted points by the identity of their set and the reach that their cells are made for.
Sorts = dict[tuple[int, Reach], SortedPoints]

"""Radius search and local voxelisation on a device, by the kernels of ``csrc/radius_search.cu``.

The same triplets in the same order as `pcnn.maps.radius_pairs` and `pcnn.maps.local_voxels` yield:
whether a pair is within reach, and its slot, are the same float32 expressions. Count, scan, fill:
the host waits between, for the number of triplets; several searches share that wait.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import Layout, check_table_size
from pcnn.geometry.row_lists import lists_of, pairs_of_lists
from pcnn.kernels import cuda
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from pcnn.maps.local_voxels import Edges
from pcnn.maps.point_memory import PART
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
_SEARCH = struct.Struct(f"4P2q{_CELLS}0q3f3f3i3i0q")
_COUNT = struct.Struct("2PqPq0q")
_FILL = struct.Struct("8Pq0q")

#: ``in_index [T]``, ``slot [T]`` int32 by output row, then slot, then input row; ``row_offsets
#: [N_out + 1]`` int64.
RowsCsr = tuple[Tensor, Tensor, Tensor]


class Window(NamedTuple):
    """The points around a centre that a kernel sees."""

    reach: Reach  # ball radius, or half widths of a box [m]
    edges: Edges  # of a kernel cell [m]
    size: Triple  # odd kernel size per axis
    outside: str  # clamp or drop

    @property
    def volume(self) -> int:
        """Kernel slots K."""
        return self.size[0] * self.size[1] * self.size[2]


@dataclass(frozen=True)
class SortedPoints:
    """Points sorted by cells of side 2R, for searches with one reach."""

    places: Tensor  # [N, 4] int32, three floats and the row
    keys: Tensor  # [2, N] int64; the first row is sorted
    cells: tuple[float | int, ...]  # as kernels take them
    crowd: Tensor  # [] int64, squares of the numbers of points in these cells, summed

    @classmethod
    def of(cls, points: Tensor, batch: Tensor, batch_size: int, reach: Reach) -> SortedPoints:
        """Sort points."""
        device, n, points = points.device, points.shape[0], points.contiguous()
        kernels, cells = cuda.module("radius_search.cu", device), _cells(reach, batch_size)
        sort, passes = RadixSort.of(n, device), passes_of(KEY_BITS)
        pointers = (points.data_ptr(), batch.data_ptr(), *sort.pointers)
        blocks = max(1, min(_KEY_BLOCKS, -(-n // ROWS)))
        kernels.launch("cell_keys", blocks, _KEYS.pack(*pointers, n, *cells, passes), device)
        sort.run(passes)
        places = torch.empty(n, 4, dtype=torch.int32, device=device)
        arguments = (points.data_ptr(), sort.values.data_ptr(), places.data_ptr(), n)
        kernels.launch("place_points", -(-n // ROWS), _PLACES.pack(*arguments), device)
        keys = sort.keys[0]
        own = torch.searchsorted(keys, keys, right=True) - torch.searchsorted(keys, keys)
        return cls(places, sort.keys, cells, own.sum())


@dataclass(frozen=True)
class Neighbours:
    """Triplets of a kernel over native points, in two orders."""

    in_index: Tensor  # [T] int32 input rows, by slot, then output row, then input row
    out_index: Tensor  # [T] int32 output rows in the same order
    rows_csr: RowsCsr  # see RowsCsr


@dataclass(frozen=True)
class CountedNeighbours:
    """A search that knows how many triplets there are, on the device."""

    ends: Tensor  # [K + 1] int64, where every slot begins
    counts: Tensor
    row_offsets: Tensor  # [N_out + 1] int64
    search: bytes  # arguments of the kernels
    crowd: Tensor  # [2] int64: the triplets, and SortedPoints.crowd
    kept: tuple[Tensor, ...]  # tensors that the arguments point to

    @classmethod
    def of(
        cls,
        source: SortedPoints,
        centres: Tensor,  # [M, 3] float32, where the kernel lies for every output row; at least one
        batch: Tensor,  # [M] int64
        window: Window,
        most: int | None = None,
    ) -> CountedNeighbours:
        """Count the triplets of an odd kernel around every centre; nothing waits."""
        device, m, volume = centres.device, centres.shape[0], window.volume
        chunks, centres = -(-m // ROWS), centres.contiguous()
        search = _search(source, centres, batch, window, flipped=False)
        counts = torch.empty(2, volume, chunks, dtype=torch.int32, device=device)
        guard = None if most is None else (source.crowd, most)
        row_offsets = _count(search, m, counts, volume, device, guard)
        ends = torch.empty(volume + 1, dtype=torch.int64, device=device)
        scan_counts(counts[0], counts[1], ends)
        kept = source.places, source.keys, centres, batch
        crowd = torch.stack((row_offsets[-1], source.crowd))
        return cls(ends, counts, row_offsets, search, crowd, kept)

    def fill(self, triplets: int) -> Neighbours:
        """Write the triplets, of which there are so many."""
        device = self.ends.device
        by_slot, by_row = empty_pairs(triplets, device), _apart(triplets, device)
        _fill(self.search, self.counts, self.ends, self.row_offsets, by_slot, by_row)
        return Neighbours(*by_slot, (*by_row, self.row_offsets))


def _search(
    places: SortedPoints, centres: Tensor, batch: Tensor, window: Window, flipped: bool
) -> bytes:
    reach = window.reach
    limits = reach if isinstance(reach, tuple) else (reach * reach, 0.0, 0.0)
    return _SEARCH.pack(
        *(tensor.data_ptr() for tensor in (places.places, places.keys, centres, batch)),
        *(places.places.shape[0], centres.shape[0]),
        *places.cells,
        *limits,
        *window.edges,
        *window.size,
        not isinstance(reach, tuple),
        window.outside == "drop",
        flipped,
    )


def _count(
    search: bytes,
    rows: int,
    counts: Tensor | None,
    volume: int,
    device: torch.device,
    guard: tuple[Tensor, int] | None = None,
) -> Tensor:
    """Launch the counting; returns where the triplets of every row begin."""
    # guard: a number on the device, beyond which nothing is counted
    sizes = torch.empty(rows, dtype=torch.int32, device=device)
    chunks = -(-rows // ROWS)
    crowd, most = (0, 0) if guard is None else (guard[0].data_ptr(), guard[1])
    by_slot = 0 if counts is None else counts.data_ptr()
    count = _COUNT.pack(by_slot, sizes.data_ptr(), chunks, crowd, most)
    kernels = cuda.module("radius_search.cu", device)
    kernels.launch("count_neighbours", chunks, search + count, device, shared_bytes=4 * volume)
    offsets = torch.zeros(rows + 1, dtype=torch.int64, device=device)
    torch.cumsum(sizes, 0, out=offsets[1:])
    return offsets


def _fill(
    search: bytes,
    counts: Tensor | None,
    ends: Tensor | None,
    row_offsets: Tensor,
    by_slot: Sequence[Tensor] | None,
    by_row: Sequence[Tensor],
) -> None:
    device, chunks = row_offsets.device, -(-(row_offsets.shape[0] - 1) // ROWS)
    slots = (0, 0, 0) if counts is None or ends is None else (*_pointers(counts), ends.data_ptr())
    listed = (0, 0) if by_slot is None else _pointers(by_slot)
    fill = _FILL.pack(*slots, row_offsets.data_ptr(), *listed, *_pointers(by_row), chunks)
    kernels = cuda.module("radius_search.cu", device)
    kernels.launch("fill_neighbours", chunks, search + fill, device)


def _apart(triplets: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Room for inputs and slots by row, each freed without the other: tiles keep the inputs."""
    inputs, slots = (torch.empty(triplets, dtype=torch.int32, device=device) for _ in range(2))
    return inputs, slots


def _pointers(tensors: Sequence[Tensor] | Tensor) -> tuple[int, ...]:
    return tuple(tensor.data_ptr() for tensor in tensors)


def _cells(reach: Reach, batch_size: int) -> tuple[float | int, ...]:
    """Cells of the search as its kernels take them; sides as in `pcnn.maps.radius_pairs`."""
    widths = reach if isinstance(reach, tuple) else (reach,) * 3
    rest = KEY_BITS - (batch_size - 1).bit_length()
    return (
        *(1 / (2 * width * CELL_MARGIN) for width in widths),
        *(width * BOX_MARGIN for width in widths),
        *((rest + 2) // 3, (rest + 1) // 3, rest // 3),
    )


#: Sorted points by the identity of their set and the reach that their cells are made for.
Sorts = dict[tuple[int, Reach], SortedPoints]


@dataclass(frozen=True)
class SearchedPoints:
    """Points and centres without their sets: a map keeps them, and no map keeps a set alive."""

    points: Tensor  # [N_in, 3] float32 inputs
    keys: Tensor  # [N_in] int64 packed cells, whose highest bits are the cloud
    centres: Tensor  # [N_out, 3] float32, the kernel's centre at every output
    centre_keys: Tensor  # [N_out] int64
    batch_shift: int  # of the cloud in a key
    batch_size: int  # number of clouds
    window: Window  # what the kernel sees

    def counted(self, sorts: Sorts, name: int, most: int) -> CountedNeighbours:
        """Count the triplets; nothing waits."""
        key = name, self.window.reach
        if key not in sorts:
            sorts[key] = self._sorted(self.points, self.keys)
        batch = self.centre_keys >> self.batch_shift
        return CountedNeighbours.of(sorts[key], self.centres, batch, self.window, most)

    def by_row(self, kernel_map: KernelMap) -> Layout:
        """Layout ``rows_csr`` of either side of the map, by one more search; nothing waits.

        That takes no memory besides the result, where sorting the pairs would take 24 bytes a
        triplet.
        """
        places, centres, batch = self._from(kernel_map.flipped)
        search = _search(places, centres, batch, self.window, kernel_map.flipped)
        offsets = _count(search, len(centres), None, kernel_map.volume, centres.device)
        by_row = _apart(kernel_map.triplets, centres.device)
        _fill(search, None, None, offsets, None, by_row)
        return *by_row, offsets

    def lists(self, kernel_map: KernelMap) -> Layout:
        """Layout ``row_lists`` of either side of the map, searched a part of the rows at a time.

        It takes 4 bytes a triplet, and some 32 for each of `PART`, or of one row with more. The
        host waits once.
        """
        volume, flipped, triplets = kernel_map.volume, kernel_map.flipped, kernel_map.triplets
        check_table_size(kernel_map.n_out, volume + 1)
        places, centres, batch = self._from(flipped)
        device, m = centres.device, centres.shape[0]
        search = _search(places, centres, batch, self.window, flipped)
        offsets = _count(search, m, None, volume, device)
        begins = torch.arange(PART, triplets, PART, device=device)
        rows = torch.searchsorted(offsets, begins, right=True) - 1
        first, ends = torch.stack((rows, offsets[rows])).tolist()
        cuts = [(0, 0), *zip(first, ends, strict=True), (m, triplets)]
        in_index = torch.empty(triplets, dtype=torch.int32, device=device)
        fan_in = torch.zeros(m * volume, dtype=torch.int32, device=device)
        for (row, begin), (last, end) in itertools.pairwise(cuts):
            if begin == end:
                continue
            own = _search(places, centres[row:last], batch[row:last], self.window, flipped)
            slots = torch.empty(end - begin, dtype=torch.int32, device=device)
            chunks = -(-(last - row) // ROWS)
            # rows begin at their place among all triplets, and the slots hold the part's alone
            listed = in_index.data_ptr(), slots.data_ptr() - 4 * begin
            fill = _FILL.pack(0, 0, 0, offsets[row:].data_ptr(), 0, 0, *listed, chunks)
            kernels = cuda.module("radius_search.cu", device)
            kernels.launch("fill_neighbours", chunks, own + fill, device)
            numbers = torch.arange(row, last, device=device) * volume
            sizes = offsets[row : last + 1].diff()
            code = torch.repeat_interleave(numbers, sizes, output_size=end - begin).add_(slots)
            fan_in.index_add_(0, code, torch.ones_like(slots))
        return lists_of(fan_in.view(m, volume), in_index)

    def crowded(self, offsets: Tensor, counts: Tensor, claims: Mapping[str, Any]) -> KernelMap:
        """The map of so many triplets that none is listed before a layout is asked for."""
        rows = claims["n_in"], claims["n_out"]
        unique = claims["one_per_slot"], claims["one_per_slot_transposed"]
        own = {"rows_csr": self.by_row, "row_lists": self.lists, "pairs": _pairs_of_lists}
        edges = EdgeSet(
            rows, len(counts), unique, claims["symmetric"], {**DEVICE_LAYOUTS, **own}, True
        )
        for flipped in (False, True):
            edges.layouts["offsets", flipped] = (offsets,)
            edges.layouts["counts", flipped] = (counts,)
        return KernelMap(edges)

    def _from(self, flipped: bool) -> tuple[SortedPoints, Tensor, Tensor]:
        """Sorted points, centres and their clouds, of a search from either side."""
        inputs, outputs = (self.points, self.keys), (self.centres, self.centre_keys)
        (near, own), (centres, keys) = (outputs, inputs) if flipped else (inputs, outputs)
        return self._sorted(near, own), centres.contiguous(), keys >> self.batch_shift

    def _sorted(self, points: Tensor, keys: Tensor) -> SortedPoints:
        batch = keys >> self.batch_shift
        return SortedPoints.of(points, batch, self.batch_size, self.window.reach)


def _pairs_of_lists(kernel_map: KernelMap) -> Layout:
    if not kernel_map.flipped:
        return pairs_of_lists(kernel_map)
    out_index, in_index, offsets = kernel_map.transpose().layout("pairs")
    return in_index, out_index, offsets

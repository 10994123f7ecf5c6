"""Radius search and local voxelisation on a device, by the kernels of ``csrc/radius_search.cu``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import Layout
from pcnn.kernels import cuda
from pcnn.kernels.structs import struct_of
from pcnn.maps.pairs import in_quads, scan_counts
from pcnn.maps.point_cells import BOX_MARGIN, CELL_MARGIN, Edges, Reach
from pcnn.maps.radix_sort import KEY_BLOCKS, RadixSort, passes_of

#: Bits of a sort key: the cloud, and the number of a cell along every axis.
KEY_BITS = 32

#: Output rows of a block, threads of its other kernels, and searches, as in the source.
ROWS, THREADS, MAX_TASKS = 32, 256, 12


class Window(NamedTuple):
    """The points around a centre that a kernel sees."""

    reach: Reach  # ball radius, or half widths of a box [m]
    edges: Edges  # of a kernel cell [m]
    size: Triple  # odd kernel size per axis


class Search(NamedTuple):
    """Points, and centres around which a kernel sees those of the same cloud; neither is empty."""

    points: Tensor  # [N, 3] float32
    batch: Tensor  # [N] int64, the cloud above so many bits
    centres: Tensor  # [M, 3] float32
    centres_batch: Tensor  # [M] int64
    batch_size: int
    window: Window  # of an odd kernel
    shift: int = 0  # so many bits
    most: int = (1 << 63) - 1  # pairs that are compared


class CountedNeighbours:
    """Searches that know how many triplets there are, on the device."""

    def __init__(self, searches: Sequence[Search]) -> None:
        """Count the triplets of `MAX_TASKS` searches at most; nothing waits."""
        device, reaches = searches[0].points.device, [one.window.reach for one in searches]
        volumes = [math.prod(one.window.size) for one in searches]
        self.rows = [len(one.centres) for one in searches]
        # points are sorted once for the searches of a reach
        sorts = {(id(s.points), reach): s for s, reach in zip(searches, reaches, strict=True)}
        spare = len(sorts) % 2  # all numbers begin at multiples of 16 bytes
        self._sizes = sizes = [len(sorts), spare, *(volume + 3 for volume in volumes)]
        self._words = torch.zeros(sum(sizes) + 1, dtype=torch.int64, device=device)
        crowds, _, *numbers = self._words[:-1].split(sizes)
        #: [K + 3] int64 of each: where every slot begins, then the triplets, and the squares of
        #: the numbers of points in cells, summed
        self.numbers = numbers
        held, sort, places = _sorted(sorts, crowds)
        self._kept: list[object] = [searches, sort, places]  # of which kernels have addresses
        self._kernels = cuda.module("radius_search.cu", device)

        shapes = [(k, -(-m // ROWS)) for k, m in zip(volumes, self.rows, strict=True)]
        parts = [in_quads(volume * chunks) for volume, chunks in shapes]
        # triplets, and their first position inside the slot
        counted, begun = torch.empty(2, sum(parts), dtype=torch.int32, device=device)
        self._kept.append(counted)
        each = zip(counted.split(parts), begun.split(parts), shapes, numbers, strict=True)
        scans = [(c[: k * n].view(k, n), b, ends) for c, b, (k, n), ends in each]
        tasks, chunk, row, task_of = [], 0, 0, struct_of("radius_search.cu", "Search", ())
        for search, (counts, starts, own) in zip(searches, scans, strict=True):
            points, _, centres, of, _, (reach, edges, size), _, most = search
            number, first, cells = held[id(points), reach]
            self._kept.append(centres := centres.contiguous())
            task = (
                *(places.data_ptr() + 16 * first, sort.keys.data_ptr() + 8 * first),
                *(centres, of, len(points), len(centres), cells),
                *(reach if isinstance(reach, tuple) else (reach * reach,), edges, size),
                *(int(not isinstance(reach, tuple)), chunk, counts.shape[1], row),
                *(counts, starts, own, crowds[number:], most),
            )
            tasks.append(task_of.pack(task, places.get_device()))
            chunk += counts.shape[1]
            row += len(centres)
        found = torch.empty(row, dtype=torch.int32, device=device)
        ends = torch.zeros(row + 1, dtype=torch.int64, device=device)
        self._chunks, self._given = chunk, (found, ends, len(tasks), tasks)
        shared = 4 * max(volumes)
        self._kernels.launch("count_neighbours", chunk, *self._given, [], shared_bytes=shared)
        torch.cumsum(found, 0, out=ends[1:])
        scan_counts(*scans)

    def fill(self, triplets: Sequence[int]) -> list[tuple[Tensor, Tensor, Layout, Tensor]]:
        """Of every search ``in_index``, ``out_index`` ``[T]`` int32, ``rows_csr`` and counts."""
        parts, device = [in_quads(number) for number in triplets], self._words.device
        pairs = torch.empty(2, sum(parts), dtype=torch.int32, device=device)
        # apart, so that each is freed without the other: steps keep the inputs
        inputs, slots = (torch.empty_like(pairs[0]) for _ in range(2))
        tensors = zip(*(one.split(parts) for one in (*pairs, inputs, slots)), strict=True)
        rows = [m + 1 + (m + 1) % 2 for m in self.rows]
        offsets = torch.empty(sum(rows), dtype=torch.int64, device=device).split(rows)
        lists = []
        for own, row_offsets, number, m in zip(tensors, offsets, triplets, self.rows, strict=True):
            lists.append((*(one[:number] for one in own), row_offsets[: m + 1]))
        self._kernels.launch("fill_neighbours", self._chunks, *self._given, lists)
        counts = self._words.diff().split(self._sizes)[2:]
        each = zip(lists, counts, strict=True)
        self.lists = [(i, o, tuple(rows), own[:-3]) for (i, o, *rows), own in each]
        return self.lists


def _sorted(
    searches: Mapping[tuple[int, Reach], Search], crowds: Tensor
) -> tuple[dict[tuple[int, Reach], tuple[int, int, bytes]], RadixSort, Tensor]:
    """Sort points by cells of side 2R: number, first item and cells of every reach, and places."""
    held, tasks, items, device = {}, [], 0, crowds.device
    for number, ((at, reach), one) in enumerate(searches.items()):
        points, own = one.points.contiguous(), _cells(reach, one, number)
        held[at, reach] = number, items, own
        tasks.append((points, one.batch, items, len(points), crowds[number:], own))
        items += len(points)
    sort, passes = RadixSort.of(items, device), passes_of(KEY_BITS + (len(held) - 1).bit_length())
    places = torch.empty(items, 4, dtype=torch.int32, device=device)
    kernels, blocks = cuda.module("radius_search.cu", device), -(-items // THREADS)
    given = kernels.pack("cell_keys", (sort.buffers, places, items, passes, len(tasks), tasks))
    kernels.run("cell_keys", min(KEY_BLOCKS, blocks), given)
    sort.run(passes)
    kernels.run("place_points", blocks, given)
    return held, sort, places


def _cells(reach: Reach, search: Search, task: int) -> bytes:
    """Cells of the search as its kernels take them."""
    widths = reach if isinstance(reach, tuple) else (reach,) * 3
    clouds = (search.batch_size - 1).bit_length()
    rest = KEY_BITS - clouds
    inverse = [1 / (2 * width * CELL_MARGIN) for width in widths]
    boxes, bits = [width * BOX_MARGIN for width in widths], ((rest + 2) // 3, (rest + 1) // 3)
    given = inverse, boxes, (*bits, rest // 3), search.shift, task << clouds
    return struct_of("radius_search.cu", "Cells", ()).pack(given, -1)

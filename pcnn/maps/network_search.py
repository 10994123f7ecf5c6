"""Z-delta search of all maps of a network in one launch (Spira, section 5.5).

Three launches serve a network: the search of every map, the sums of what it counted, and, once the
host has read those, the lists of pairs. The host looks at the numbers of sites and of triplets of
all levels and maps together, so a network waits once.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, KeyFormat, VoxelGrid
from pcnn.geometry.kernel_map import EdgeSet, outside_inference_mode
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import check_table_size
from pcnn.geometry.slot_subsets import slots_on, split_slots, threshold_of
from pcnn.kernels.cuda import Module, module
from pcnn.maps.device_layouts import DEVICE_LAYOUTS, map_of_table
from pcnn.maps.hybrid_map import HybridMap, map_of_half
from pcnn.maps.packed_search import (
    HYBRID,
    Search,
    Tiling,
    arguments_of,
    table_rows,
    tiling,
)
from pcnn.maps.table_to_pairs import (
    PAIR_WARPS,
    SCAN_ARGUMENTS,
    TRANSPOSED_ARGUMENTS,
    UNBOUNDED,
    empty_pairs,
)
from pcnn.maps.window_search import Sites

#: Maps of a launch, as in ``csrc/network.cuh``.
MAX_MAPS = 14

#: A threshold beyond every norm: all slots are dense.
ALL = (1 << 31) - 1

_ENDS = struct.Struct(f"{MAX_MAPS}ii0q")


@dataclass(frozen=True)
class PackedShape:
    """The part of a search that does not depend on its sites; made once for a network."""

    product: str  # layout that is written: table, pairs, half_pairs or hybrid:<t>
    kernel: Kernel  # the relation
    spacing: Triple  # tensor stride of the inputs
    key_format: KeyFormat  # of the keys
    symmetric: bool  # the map serves as its own transpose, slots mirrored
    search: Search  # how keys are compared
    threshold: int  # slots of a smaller L1 norm go to the table
    dense: tuple[int, ...]  # those slots
    listed: tuple[int, ...]  # slots whose pairs are listed, from the first of the others on
    _slots: dict[torch.device, tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        spacing: Triple,
        key_format: KeyFormat,
        symmetric: bool,
        names: Sequence[tuple[str, bool]],
        search: Search,
    ) -> PackedShape | None:
        """Shape of the search for a map; ``None``: it is not one that this search writes."""
        product = _product(names, symmetric and kernel.volume % 2 == 1 and kernel.volume > 1)
        if product is None:
            return None
        given = product, kernel, spacing, key_format, symmetric, search
        if product == "half_pairs":
            return cls(*given, 0, (), tuple(range(kernel.volume // 2)))
        name, _, number = product.partition(":")
        of_all = {"table": ALL, "pairs": 0}
        threshold = threshold_of(number, kernel.norms) if number else of_all[name]
        dense, sparse = split_slots(kernel.norms, threshold)
        if name == "hybrid" and symmetric and dense:
            sparse = sparse[: len(sparse) // 2]
        return cls(*given, threshold, dense, sparse)

    @property
    def words(self) -> int:
        """Words of a report that the search writes: 64-bit sums and counts of the listed slots."""
        return 2 * (2 * len(self.listed) + 1) if self.listed else 0

    def tiles(self, rows: int) -> Tiling:
        """How the search is cut for so many outputs; slots behind the last one are not searched."""
        dense = len(self.dense)
        last = max((*self.dense[-1:], *self.listed[-1:]), default=-1) + 1
        size = self.search.rows or table_rows(rows, max(dense, 1))
        return tiling(self.search, HYBRID, self.kernel, rows, size, dense, slots=last)

    def slots_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """``[D]``, ``[S]`` int32: dense and listed slots on a device, made once."""
        if device not in self._slots:
            with outside_inference_mode():
                self._slots[device] = slots_on(self.dense, device), slots_on(self.listed, device)
        return self._slots[device]

    def writes(self, names: Sequence[tuple[str, bool]]) -> bool:
        """True if what the search writes is all that is read; names as in `of`."""
        written = self.product if self.dense or self.product != "pairs" else "half_pairs"
        return {name for name, _ in names} == {written} and not any(side for _, side in names)

    def pairs_of(self, built: KernelMap) -> int:
        """Pairs of the listed slots of a map that was built for this shape."""
        there = built.edges.layouts[self.product, False]
        return there[-4 if self.product.startswith("hybrid:") else 0].shape[0]

    def ends(self, words: Sequence[int]) -> list[int]:
        """First pair of every listed slot, and the end of the last, from the report's words."""
        low, high = words[0 : 2 * len(self.listed) + 2 : 2], words[1::2]
        return [(b << 32) | (a & 0xFFFFFFFF) for a, b in zip(low, high, strict=False)]


def _product(names: Sequence[tuple[str, bool]], halves: bool) -> str | None:
    """The layout to write of a map, of those that are read."""
    read = {name for name, _ in names}
    listing = {name for name in read if name in ("pairs", "counts", "half_pairs", "offsets")}
    hybrids = {name for name in read if name.startswith("hybrid:") and name != "hybrid:0"}
    if not read or read - listing - hybrids - {"table"}:
        return None
    if read == {"table"}:
        return "table"
    (name, flipped), *others = names
    if not others and not flipped and (name in hybrids or (name == "half_pairs" and halves)):
        return name
    return "pairs"


@dataclass(frozen=True)
class PackedFind:
    """One map's search on the sites of a batch."""

    source: Sites  # input sites
    target: Sites  # output sites
    shape: PackedShape  # of the search
    tiles: Tiling  # how it is cut
    table: Tensor  # [N_out, D] int32, written
    report: Tensor | None  # words on the device
    scratch: Tensor  # by-slot results, counts and their sums; read by list_pairs
    capacity: int = UNBOUNDED  # pairs that there is room for

    @classmethod
    def allocate(
        cls,
        source: Sites,
        target: Sites,
        shape: PackedShape,
        report: Tensor | None,
        capacity: int = UNBOUNDED,
    ) -> PackedFind:
        """Room for the results of a search; arguments as of the class."""
        if max(source.rows, target.rows) >= 1 << 31:
            raise ValueError(f"a row is a 32-bit number, but there are {source.rows} keys")
        dense, listed, rows = len(shape.dense), len(shape.listed), target.rows
        check_table_size(rows, dense + listed)
        device, tiles = target.keys.device, shape.tiles(rows)
        table = torch.empty(rows, dense, dtype=torch.int32, device=device)
        words = listed * rows + 2 * _aligned(listed * tiles.tiles) + 4
        scratch = torch.empty(words if listed else 0, dtype=torch.int32, device=device)
        kept = report if listed else None
        return cls(source, target, shape, tiles, table, kept, scratch, capacity)

    @property
    def _by_slot(self) -> tuple[int, int, int]:
        """Addresses of the results by slot ``[S, rows]``, of their counts, and of the sums."""
        first = self.scratch.data_ptr()
        if not first:
            return 0, 0, 0
        counts = first
        starts = counts + 4 * _aligned(len(self.shape.listed) * self.tiles.tiles)
        found = starts + 4 * _aligned(len(self.shape.listed) * self.tiles.tiles)
        return found, counts, starts

    @property
    def blocks(self) -> int:
        """Blocks of the search."""
        return self.tiles.tiles * self.tiles.chunks

    def arguments(self) -> bytes:
        """Of the search."""
        found, counts, _ = self._by_slot
        written = self.table.data_ptr(), found, 0, 0, counts
        (keys, at), (wanted, to) = self.source.pointers, self.target.pointers
        shape = self.shape
        return arguments_of(
            shape.kernel,
            shape.spacing,
            shape.key_format,
            (keys, wanted, *written, at, to),
            (self.source.rows, self.target.rows),
            self.tiles,
            shape.threshold,
            len(shape.listed),
            fill=self.target.fixed,
        )

    def scan_arguments(self) -> bytes:
        """Of the sums over counts."""
        assert self.report is not None
        _, counts, starts = self._by_slot
        sums, slots = self.report.data_ptr(), len(self.shape.listed)
        totals = sums + 8 * (slots + 1)
        sizes = self.tiles.tiles, self.capacity, slots
        return SCAN_ARGUMENTS.pack(counts, starts, sums, totals, *sizes)

    def fill_arguments(self, rows: int, pairs: tuple[Tensor, Tensor]) -> tuple[bytes, int]:
        """Of the lists, and their blocks."""
        assert self.report is not None
        found, _, starts = self._by_slot
        slots, tiles = len(self.shape.listed), self.tiles
        pointers = found, starts, self.report.data_ptr(), *(p.data_ptr() for p in pairs)
        counted = self.target.pointers[1] if self.target.fixed else 0
        sizes = rows, tiles.tiles, self.target.rows, self.capacity, slots, tiles.rows, 0
        arguments = TRANSPOSED_ARGUMENTS.pack(*pointers, counted, *sizes)
        return arguments, -(-slots * tiles.tiles // PAIR_WARPS)

    def kernel_map(
        self,
        source: VoxelGrid,
        target: VoxelGrid,
        pairs: tuple[Tensor, Tensor] | None,
        ends: Sequence[int] = (0,),
    ) -> KernelMap:
        """The map of the sites; in memory of fixed size it has the written layout and no other."""
        shape, table = self.shape, self.table[: target.rows]
        if shape.product == "table":
            return map_of_table(source, target, shape.kernel, table)
        slots, device = len(shape.listed), table.device
        dense, sparse = shape.slots_on(device)
        counts = torch.empty(0, dtype=torch.int64, device=device)
        if pairs is None:
            pairs = empty_pairs(0, device)
        elif self.report is not None:
            counts = self.report.view(torch.int64)[slots + 1 :]
        if self.target.fixed:
            sides, rows = (source.count, target.count), (source.rows, target.rows)
            alike = shape.symmetric
            edges = EdgeSet(rows, shape.kernel.volume, (True, True), alike, counts=sides)
            own = (table, dense, *pairs, counts, sparse) if shape.dense else (*pairs, counts)
            edges.layouts[shape.product if shape.dense else "half_pairs", False] = own
            return KernelMap(edges)
        listed = *pairs, torch.tensor(ends)
        if shape.product == "half_pairs":
            return map_of_half(listed, source.rows, counts)
        if shape.product == "pairs":
            sizes, symmetric = (source.rows, target.rows), shape.symmetric
            built = KernelMap.from_pairs(
                *listed, *sizes, symmetric=symmetric, derive=DEVICE_LAYOUTS
            )
            built.edges.layouts["counts", False] = (counts,)
            return built
        halved = len(shape.dense) + len(shape.listed) < shape.kernel.volume
        split = HybridMap(table, shape.dense, *listed, shape.listed, source.rows, halved)
        return split.kernel_map(shape.product, shape.symmetric, (dense, sparse, counts))


def search_packed(finds: Sequence[PackedFind]) -> None:
    """Search many maps of one device, and sum what was found by slot; nothing waits."""
    device = finds[0].table.device
    tasks = [(find.arguments(), find.blocks) for find in finds if find.blocks]
    kernels = module("z_delta.cu", device, KEY_BITS=64, LAYOUT=HYBRID)
    shared = max((find.tiles.shared_bytes for find in finds if find.blocks), default=0)
    _in_launches(kernels, "z_delta_network", tasks, device, shared)
    listing = [find for find in finds if find.report is not None]
    tasks = [(find.scan_arguments(), len(find.shape.listed)) for find in listing]
    _in_launches(module("pairs.cu", device), "scan_network", tasks, device)


def list_pairs(
    finds: Sequence[PackedFind], rows: Sequence[int], sizes: Sequence[int]
) -> list[tuple[Tensor, Tensor]]:
    """Pairs of the listed slots of many maps."""
    device = finds[0].table.device
    made = [empty_pairs(own, device) for own in sizes]
    tasks = [f.fill_arguments(n, pairs) for f, n, pairs in zip(finds, rows, made, strict=True)]
    _in_launches(module("pairs.cu", device), "fill_network", tasks, device)
    return made


def _in_launches(
    kernels: Module,
    kernel: str,
    tasks: Sequence[tuple[bytes, int]],
    device: torch.device,
    shared_bytes: int = 0,
) -> None:
    """Launch a kernel over many tasks, each with its arguments and blocks, `MAX_MAPS` at a time."""
    for start in range(0, len(tasks), MAX_MAPS):
        some = tasks[start : start + MAX_MAPS]
        spare = MAX_MAPS - len(some)
        *ends, blocks = itertools.accumulate(own for _, own in some)
        given = b"".join(arguments for arguments, _ in some) + bytes(len(some[0][0]) * spare)
        given += _ENDS.pack(*ends, blocks, *[0] * spare, len(some))
        kernels.launch(kernel, blocks, given, device, shared_bytes=shared_bytes)


def _aligned(words: int) -> int:
    """Words up to the next multiple of 16 bytes."""
    return -(-words // 4) * 4

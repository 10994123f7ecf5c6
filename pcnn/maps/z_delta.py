"""Z-delta search on packed keys (Spira, sections 5.2 to 5.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.layouts import mask_words
from pcnn.geometry.slot_subsets import is_threshold, split_slots, threshold_of
from pcnn.maps.device_layouts import DEVICE_LAYOUTS, map_of_table
from pcnn.maps.hybrid_map import HybridMap, map_of_half
from pcnn.maps.packed_search import (
    HALF_TABLE,
    HYBRID,
    TRANSPOSED,
    Found,
    Search,
    chunk_rows,
    run_search,
    search_table,
    table_rows,
    tiling,
)
from pcnn.maps.table_to_pairs import Pairs, pairs_from_transposed

PRODUCTS = ("table", "pairs", "half_pairs")


@dataclass(frozen=True)
class ZDelta:
    """One binary search for every output and (x, y) of the kernel, then steps along z.

    Keys are sorted, so inputs of equal (x, y) are consecutive and ascend in z: from the smallest z
    of the kernel, found by binary search, the other K_z - 1 slots are a few steps forward. The
    kernel writes each layout directly, as the dataflow wants it.
    """

    device_only: ClassVar[bool] = True
    name: str = "z_delta"  # in configurations and reports
    #: layout that `build` writes: ``table`` without a wait, ``pairs``, ``half_pairs`` (the first
    #: half of a submanifold map), or ``hybrid:<t>`` (slots of L1 norm below t as a table)
    product: str = "table"
    key_bits: int | str = "auto"  # 64, 32 (one cloud that takes no more), or auto, which is 64
    half: bool | None = None  # search only the first half of a symmetric map, and mirror it
    rows: int | None = None  # output rows of a tile; None picks by size
    _search: Search = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.product not in PRODUCTS and self._setting is None:
            raise ValueError(
                f"{self.name}: product must be one of {', '.join(PRODUCTS)}, hybrid:<threshold>, "
                f"got {self.product!r}"
            )
        object.__setattr__(self, "_search", Search("z_delta", True, self.key_bits, self.rows))

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by z-delta search; see `MapBuilder.build`."""
        symmetric = kernel.is_symmetric and source is target
        if self._setting is not None:
            threshold = threshold_of(self._setting, kernel.norms)
            split = self.hybrid(source, target, kernel, threshold, symmetric)
            return split.kernel_map(self.product, symmetric)
        if self.product == "half_pairs" and self._halves(source, target, kernel):
            by_slot, counts, size = self.transposed(source, target, kernel, kernel.volume // 2)
            return map_of_half(pairs_from_transposed(by_slot, counts, size, False), source.rows)
        if self.product != "table":
            in_index, out_index, offsets = self.pairs(source, target, kernel)
            sizes = (source.rows, target.rows)
            return KernelMap.from_pairs(
                in_index, out_index, offsets, *sizes, symmetric=symmetric, derive=DEVICE_LAYOUTS
            )
        return map_of_table(source, target, kernel, *self.table(source, target, kernel))

    def table(
        self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Neighbour table, row masks and triplets of every slot, without waiting for the device."""
        if not (self.half and self._halves(source, target, kernel)):
            return search_table(self._search, source, target, kernel)
        rows, volume, device = target.rows, kernel.volume, source.device
        table = torch.full((rows, volume), -1, dtype=torch.int32, device=device)
        # both halves of a mask are joined by atomics, like the counts
        masks = torch.zeros(rows, mask_words(volume), dtype=torch.int32, device=device)
        counts = torch.zeros(volume, dtype=torch.int64, device=device)
        half = volume // 2
        size = self.rows or table_rows(rows, half)
        words = masks.shape[1]
        tiles = tiling(self._search, HALF_TABLE, kernel, rows, size, volume, words, half)
        found = Found(table, None, masks, counts)
        run_search(self._search, HALF_TABLE, source, target, kernel, tiles, found)
        return table, masks, counts

    def transposed(
        self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel, slots: int | None = None
    ) -> tuple[Tensor, Tensor, int]:
        """Neighbour table by slot, written along outputs, without waiting for the device."""
        rows, device = target.rows, source.device
        slots = kernel.volume if slots is None else slots
        size = self.rows or chunk_rows(rows)
        tiles = tiling(self._search, TRANSPOSED, kernel, rows, size, slots=slots)
        table = torch.empty(slots, rows, dtype=torch.int32, device=device)
        counts = torch.empty(slots, tiles.tiles, dtype=torch.int32, device=device)
        found = Found(transposed=table, tile_counts=counts)
        run_search(self._search, TRANSPOSED, source, target, kernel, tiles, found)
        return table, counts, size

    def pairs(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> Pairs:
        """Triplets by slot, then output row; waits for the device once.

        Three kernels: search, scan of the counts, fill.
        """
        half = self.half is not False and self._halves(source, target, kernel)
        slots = kernel.volume // 2 if half else kernel.volume
        table, counts, size = self.transposed(source, target, kernel, slots)
        return pairs_from_transposed(table, counts, size, half)

    def hybrid(
        self,
        source: VoxelGrid,
        target: VoxelGrid,
        kernel: Kernel,
        threshold: int,
        halved: bool = False,
    ) -> HybridMap:
        """Slots of L1 norm below a threshold as a table, the others as pairs; waits once."""
        rows, device = target.rows, source.device
        dense, sparse = split_slots(kernel.norms, threshold)
        size = self.rows or table_rows(rows, len(dense))
        tiles = tiling(self._search, HYBRID, kernel, rows, size, len(dense))
        table = torch.empty(rows, len(dense), dtype=torch.int32, device=device)
        transposed = torch.empty(len(sparse), rows, dtype=torch.int32, device=device)
        counts = torch.empty(len(sparse), tiles.tiles, dtype=torch.int32, device=device)
        found = Found(table, transposed, None, None, counts)
        run_search(self._search, HYBRID, source, target, kernel, tiles, found, threshold)
        mirrored = halved and bool(dense)
        if mirrored:
            sparse = sparse[: len(sparse) // 2]
        lists = pairs_from_transposed(transposed[: len(sparse)], counts[: len(sparse)], size, False)
        return HybridMap(table, dense, *lists, sparse, source.rows, mirrored)

    @property
    def search(self) -> Search:
        """How keys are searched."""
        return self._search

    @property
    def _setting(self) -> str | None:
        """Threshold in the product's name; ``None``: another product."""
        name, _, setting = self.product.partition(":")
        return setting if name == "hybrid" and is_threshold(setting) else None

    @staticmethod
    def _halves(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> bool:
        # an even number of slots has none at the centre, between the halves
        odd = kernel.volume % 2 and kernel.volume > 1
        return kernel.is_symmetric and source is target and bool(odd)


@dataclass(frozen=True)
class BinarySearch:
    """One search of all input keys for every (output, slot): N_out K log N_in comparisons.

    The baseline of z-delta search (Spira, section 6.4).
    """

    device_only: ClassVar[bool] = True
    name: str = "binary_search"  # in configurations and reports
    rows: int | None = None  # output rows of a tile; None picks by size
    _search: Search = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        search = Search("binary_search", False, rows=self.rows)
        object.__setattr__(self, "_search", search)

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map as a neighbour table; see `MapBuilder.build`."""
        found = search_table(self._search, source, target, kernel)
        return map_of_table(source, target, kernel, *found)

"""Simple binary search of packed keys: the baseline of z-delta search (Spira, section 6.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps.device_layouts import map_of_table
from pcnn.maps.packed_search import Search, search_table


@dataclass(frozen=True)
class BinarySearch:
    """One search of all input keys for every (output, slot): N_out K log N_in comparisons."""

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

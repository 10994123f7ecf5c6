"""Two sets of native points between which a kernel's triplets are searched on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.layouts import Layout, check_table_size
from pcnn.geometry.row_lists import lists_of, pairs_of_lists
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from pcnn.maps.neighbour_kernels import (
    CountedNeighbours,
    SortedPoints,
    Window,
    listed_by_row,
    listed_in_parts,
)
from pcnn.maps.point_memory import PART
from pcnn.maps.radius_pairs import Reach

#: Sorted points by the identity of their set and the reach that their cells are made for.
Sorts = dict[tuple[int, Reach], SortedPoints]


@dataclass(frozen=True)
class SearchedPoints:
    """Points and centres without their sets: a map keeps them, and no map keeps a set alive.

    Args:
        points: ``[N_in, 3]`` float32 inputs.
        keys: ``[N_in]`` int64 packed cells, whose highest bits are the cloud.
        centres: ``[N_out, 3]`` float32, the kernel's centre at every output.
        centre_keys: ``[N_out]`` int64.
        batch_shift: of the cloud in a key.
        batch_size: number of clouds.
        window: what the kernel sees.
    """

    points: Tensor
    keys: Tensor
    centres: Tensor
    centre_keys: Tensor
    batch_shift: int
    batch_size: int
    window: Window

    def counted(self, sorts: Sorts, name: int, most: int) -> CountedNeighbours:
        """Count the triplets; nothing waits.

        Args:
            sorts: sorted points of other searches, used and added to.
            name: identity of the set of inputs, in ``sorts``.
            most: see `CountedNeighbours.of`.
        """
        key = name, self.window.reach
        if key not in sorts:
            sorts[key] = self._sorted(self.points, self.keys)
        batch = self.centre_keys >> self.batch_shift
        return CountedNeighbours.of(sorts[key], self.centres, batch, self.window, most)

    def by_row(self, kernel_map: KernelMap) -> Layout:
        """Layout ``rows_csr`` of either side of the map, searched anew; nothing waits.

        That takes no memory besides the result, where sorting the pairs would take 24 bytes a
        triplet.
        """
        search = self._from(kernel_map.flipped)
        return listed_by_row(*search, kernel_map.triplets, kernel_map.flipped)

    def lists(self, kernel_map: KernelMap) -> Layout:
        """Layout ``row_lists`` of either side of the map, searched in parts.

        It takes 4 bytes a triplet, and memory for one part. The host waits once.
        """
        check_table_size(kernel_map.n_out, kernel_map.volume + 1)
        search = self._from(kernel_map.flipped)
        in_index, fan_in = listed_in_parts(*search, kernel_map.triplets, kernel_map.flipped, PART)
        return lists_of(fan_in, in_index)

    def crowded(self, offsets: Tensor, counts: Tensor, claims: Mapping[str, Any]) -> KernelMap:
        """The map of so many triplets that none is listed before a layout is asked for.

        Args:
            offsets: ``[K + 1]`` int64 on the host, where the triplets of every slot begin.
            counts: ``[K]`` int64 on the device.
            claims: rows and claims, as `KernelMap.from_pairs` takes them.
        """
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

    def _from(self, flipped: bool) -> tuple[SortedPoints, Tensor, Tensor, Window]:
        """Sorted points, centres, their clouds and the window of a search from either side."""
        inputs, outputs = (self.points, self.keys), (self.centres, self.centre_keys)
        (near, own), (centres, keys) = (outputs, inputs) if flipped else (inputs, outputs)
        return self._sorted(near, own), centres, keys >> self.batch_shift, self.window

    def _sorted(self, points: Tensor, keys: Tensor) -> SortedPoints:
        batch = keys >> self.batch_shift
        return SortedPoints.of(points, batch, self.batch_size, self.window.reach)


def _pairs_of_lists(kernel_map: KernelMap) -> Layout:
    if not kernel_map.flipped:
        return pairs_of_lists(kernel_map)
    out_index, in_index, offsets = kernel_map.transpose().layout("pairs")
    return in_index, out_index, offsets

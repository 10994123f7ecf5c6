"""Two sets of native points between which a kernel's triplets are searched on a device."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import Layout
from pcnn.maps.neighbour_kernels import (
    CountedNeighbours,
    SortedPoints,
    Window,
    listed_by_row,
)
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
        inputs, outputs = (self.points, self.keys), (self.centres, self.centre_keys)
        flipped = kernel_map.flipped
        (near, own), (centres, keys) = (outputs, inputs) if flipped else (inputs, outputs)
        places, batch = self._sorted(near, own), keys >> self.batch_shift
        triplets = kernel_map.in_index.shape[0]
        return listed_by_row(places, centres, batch, self.window, triplets, flipped)

    def _sorted(self, points: Tensor, keys: Tensor) -> SortedPoints:
        batch = keys >> self.batch_shift
        return SortedPoints.of(points, batch, self.batch_size, self.window.reach)

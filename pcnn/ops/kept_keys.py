"""32-bit keys that a plan searches with, from one batch to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.voxel_grid import Box
from pcnn.maps.narrow_keys import NarrowKeys, reach_of
from pcnn.maps.network_search import PackedShape
from pcnn.ops.searched_maps import SearchedMap


class KeptKeys:
    """Fields of 32-bit keys for the cloud to come: those that the last one took.

    A plan searches before the host knows the box of a cloud. Scans of one sensor have similar
    boxes, and the fields have room to spare. The first cloud is searched with 64-bit keys; one that
    leaves the fields is searched again.
    """

    def __init__(self, maps: Sequence[SearchedMap], strides: Mapping[int, Triple]) -> None:
        self.narrow: NarrowKeys | None = None
        below, above = [0, 0, 0], [0, 0, 0]
        asked = {64}
        for entry in maps:
            if not isinstance(entry.shape, PackedShape):
                continue
            asked.add(entry.shape.search.bits)
            down, up = reach_of(entry.shape.kernel, strides[entry.source])
            for axis in range(3):  # floor moves a coordinate down, by less than its stride
                queried = strides[entry.target][axis] - 1 + down[axis]
                below[axis] = max(below[axis], queried, strides[entry.source][axis] - 1)
                above[axis] = max(above[axis], up[axis])
        self._wanted = 32 in asked
        self._below: Triple = below[0], below[1], below[2]
        self._above: Triple = above[0], above[1], above[2]

    def choose(self, box: Box, clouds: int) -> None:
        """Take fields for a cloud."""
        self.narrow = None
        if not self._wanted:
            return
        try:
            if clouds > 1:
                raise ValueError(f"32-bit keys hold one cloud, the batch holds {clouds}")
            self.narrow = NarrowKeys.of(box, self._below, self._above)
        except ValueError as error:
            raise ValueError(f"plan: {error}; use key_bits=64") from None

    def missed(self, box: Box, clouds: int) -> bool:
        """True if the maps must be searched again: the cloud does not fit the fields."""
        used = self.narrow
        if used is not None and clouds <= 1 and used.holds(box, self._below, self._above):
            return False
        self.choose(box, clouds)
        return used is not None

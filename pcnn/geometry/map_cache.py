"""The kernel maps that a geometry keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pcnn.geometry.kernel import Kernel
from pcnn.geometry.kernel_map import KernelMap

if TYPE_CHECKING:
    from pcnn.geometry.voxel_grid import VoxelGrid

Maps = dict[tuple[Any, ...], KernelMap]


class MapCache:
    """Kernel maps from one geometry, by output geometry and kernel.

    Nothing here refers to a geometry, so that no geometry keeps another alive: a relative is known
    by how it was derived, any other one by a weak reference. Relatives' maps lie in plain
    dictionaries whose keys are equal in every batch: `torch.compile` reads them.
    """

    def __init__(self) -> None:
        self._near: dict[tuple[Any, ...], Maps] = {}
        self._far: WeakKeyDictionary[VoxelGrid, Maps] = WeakKeyDictionary()

    def of(self, source: VoxelGrid, out: VoxelGrid) -> Maps:
        """Maps to one geometry, by `Kernel.key`; none of them, if there are none yet.

        Args:
            source: the geometry that keeps the maps.
            out: the output geometry.
        """
        place = _place(source, out)
        return self._far.get(out, {}) if place is None else self._near.get(place, {})

    def add(self, source: VoxelGrid, out: VoxelGrid, kernel: Kernel, built: KernelMap) -> KernelMap:
        """Keep a map; the one that is there already stays. Arguments as in `of`."""
        place = _place(source, out)
        if place is None:
            return self._far.setdefault(out, {}).setdefault(kernel.key, built)
        return self._near.setdefault(place, {}).setdefault(kernel.key, built)

    def all(self) -> list[KernelMap]:
        """All maps."""
        parts = [*self._near.values(), *self._far.values()]
        return [built for maps in parts for built in maps.values()]


def _place(source: VoxelGrid, out: VoxelGrid) -> tuple[Any, ...] | None:
    """What ``out`` is to ``source``, if one was derived from the other."""
    if out is source:
        return ("itself",)
    for key, level in source._levels.items():
        if level is out:
            return ("below", *key)
    for key, level in out._levels.items():
        if level is source:
            return ("above", *key)
    return None

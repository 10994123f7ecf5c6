"""A network's levels and maps on native points: one wait for the levels, one for all maps."""

from __future__ import annotations

from pcnn.geometry import KernelMap, PointSet
from pcnn.maps.device_layouts import has_kernels
from pcnn.maps.neighbour_kernels import Sorts
from pcnn.maps.point_levels import Step, point_levels
from pcnn.maps.point_memory import PendingMap
from pcnn.maps.radius import RadiusSearch
from pcnn.maps.radix_sort import MAX_PASSES
from pcnn.ops.recipe import NetworkPlan, Recipe


class PointPlan(NetworkPlan):
    """A recipe on native points of one kind; without device kernels map after map."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        #: passes of the sort to launch: what the last batch took, as scans of one sensor are
        #: similar
        self._passes = MAX_PASSES

    def __call__(self, given: PointSet, backward: bool) -> PointSet:
        """Derive all levels and build all maps that are not there yet, with their layouts."""
        self.lay_out(self._maps(self._levels(given)), backward, given.device)
        return given

    def _levels(self, root: PointSet) -> list[PointSet]:
        """The set and its levels, kept with it."""
        sets, levels = [root], self.recipe.levels
        kept_there = bool(root.levels())
        if has_kernels(root.device) and not kept_there:
            steps = [Step(parent, kernel.stride) for parent, _, kernel in levels]
            sets, self._passes = point_levels(root, steps, self._passes)
            for (parent, _, kernel), level in zip(levels, sets[1:], strict=True):
                sets[parent].keep_level(kernel, level)
        else:
            for parent, _, kernel in levels:
                sets.append(sets[parent].strided(kernel))
        return sets

    def _maps(self, sets: list[PointSet]) -> list[KernelMap]:
        """The maps, kept with their sources; those that device kernels serve wait together."""
        # the memory of all of them is known before one is listed
        maps: list[KernelMap | None] = [planned.found(sets) for planned in self.recipe.maps]
        sorts: Sorts = {}
        counted: dict[int, PendingMap] = {}
        for number, planned in enumerate(self.recipe.maps):
            if maps[number] is not None:
                continue
            source, target = sets[planned.source], sets[planned.target]
            builder = planned.builder
            if isinstance(builder, RadiusSearch):
                found = builder.counted(source, target, planned.kernel, sorts)
                if found is not None:
                    counted[number] = found
                    continue
            assert builder is not None
            maps[number] = source.map_to(target, planned.kernel, builder)
        finished = PendingMap.finish_all(list(counted.values()), sets[0])
        for number, built in zip(counted, finished, strict=True):
            planned = self.recipe.maps[number]
            source, target = sets[planned.source], sets[planned.target]
            maps[number] = source.add_map(target, planned.kernel, built, planned.builder)
        return [built for built in maps if built is not None]

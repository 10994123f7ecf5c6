"""A network's levels and maps on voxels; in few launches where a device has kernels for them."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from pcnn.geometry import VoxelGrid, grid_of_cells
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import layout_kind
from pcnn.geometry.tile_steps import STEPS
from pcnn.kernels.streams import Beside
from pcnn.maps.base import TableSearch, has_kernels
from pcnn.ops.device_plan import DevicePlan, Grids, Maps, Meanwhile, Room
from pcnn.ops.engine import Engine
from pcnn.ops.recipe import NetworkPlan, Recipe
from pcnn.ops.sites import dilated_sites, output_sites


class VoxelPlan(NetworkPlan):
    """A recipe on voxels."""

    def __init__(self, recipe: Recipe, engine: Engine) -> None:
        super().__init__(recipe)
        self.engine = engine
        #: finds all maps at once where there are kernels; None: they are built one by one
        together = getattr(engine.builder, "together", False)
        self._search = cast(TableSearch, engine.builder) if together else None
        #: what is made at once: all that is floor alone, or the levels of it
        self._recipe = recipe if together else Recipe(recipe.levels, ())
        self._device_plans: dict[tuple[Triple, str], DevicePlan] = {}
        #: whether some layouts list triplets, by whether backward follows
        self.lists = {
            both: together and any(layout_kind(name).lists_triplets for name in names)
            for both, names in self.names.items()
        }
        # no level or list is counted one by one
        floored = together and len(self.fixed.strides) > len(recipe.levels)
        fixed = {"table", "masks", *STEPS}
        more = {False: fixed, True: fixed | {"pairs", "counts"}}
        #: whether rooms hold all layouts, by whether backward follows
        self._fits = {both: floored and self.names[both] <= more[both] for both in more}

    def __call__(
        self,
        given: VoxelGrid | Tensor,  # cells [P, 4] int32 in any order
        backward: bool,
        batch_size: int | None = None,
        downsampling: str = "floor",
    ) -> VoxelGrid:
        """Derive all levels and build all maps that are not there yet, with their layouts."""
        maps: Maps = []
        key = (1, 1, 1), downsampling
        if isinstance(given, VoxelGrid):
            key = given.tensor_stride, given.downsampling
        if has_kernels(given.device):
            ready = self._device_plan(*key)
            grids, maps = ready.exact(given, batch_size, self.lists[backward])
        elif isinstance(given, VoxelGrid):
            grids = [given]
        else:
            grids = [grid_of_cells(given[:, 1:], given[:, 0], batch_size, downsampling)]
        return self._finish(grids, maps, backward)

    def in_room(
        self,
        cells: Tensor,  # or sorted keys, as of `DevicePlan.in_room`
        count: Tensor,
        batch_size: int,
        room: Room,
        meanwhile: Meanwhile | None = None,
        backward: bool = False,
    ) -> tuple[VoxelGrid, Tensor]:
        """Cells to a planned geometry in a room of fixed size; nothing waits."""
        beside = Beside(cells.device)
        given = cells, count, batch_size, room, beside, meanwhile
        grids, maps, report = self.fixed.in_room(*given)
        geometry = self._finish(grids, maps, backward, room)
        beside.join()
        return geometry, report

    @property
    def fixed(self) -> DevicePlan:
        """The plan of rooms, see `serves_rooms`."""
        return self._device_plan((1, 1, 1), "floor")

    def serves_rooms(self, device: torch.device, backward: bool = False) -> bool:
        """True if `in_room` serves the network: nothing of a plan waits for the device."""
        return self._fits[backward] and has_kernels(device)

    def _device_plan(self, spacing: Triple, downsampling: str) -> DevicePlan:
        """The plan for sites of one spacing."""
        key = spacing, downsampling
        if key not in self._device_plans:
            self._device_plans[key] = DevicePlan(self._recipe, *key, self._search)
        return self._device_plans[key]

    def _finish(
        self, grids: Grids, maps: Maps, backward: bool, room: Room | None = None
    ) -> VoxelGrid:
        """Levels and maps that are not there yet, then the layouts of all maps."""
        grids = grids + [None] * (1 + len(self.recipe.levels) - len(grids))
        maps = maps or [None] * len(self.recipe.maps)
        root: VoxelGrid = grids[0]
        for number, (parent, direction, kernel) in enumerate(self.recipe.levels, 1):
            above = grids[parent]
            if grids[number] is None and direction == "up":
                grids[number] = above.generated(kernel)
            elif grids[number] is None:
                derive = output_sites if kernel.is_strided else dilated_sites
                grids[number] = derive(above, kernel)
        for number, planned in enumerate(self.recipe.maps):
            source, target = grids[planned.source], grids[planned.target]
            maps[number] = maps[number] or source.kernel_map(target, planned.kernel, self.engine)
        self.lay_out(maps, backward, root.device, None if room is None else room.cut)
        return root

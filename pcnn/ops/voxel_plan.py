"""A network's levels and maps on voxels; in few launches where a device has kernels for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, VoxelGrid, grid_of_cells
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import layout_kind
from pcnn.geometry.packing import DEFAULT_FORMAT, KeyFormat
from pcnn.geometry.steps import STEPS, TILE_ROWS
from pcnn.geometry.voxel_grid import Box
from pcnn.kernels import pinned
from pcnn.kernels.beside import Beside
from pcnn.maps.base import TableSearch
from pcnn.maps.cell_bits import bitmap_words, fitting_words
from pcnn.maps.device_layouts import has_kernels
from pcnn.maps.levels import MAX_LEVELS, box_of
from pcnn.maps.steps import step_views
from pcnn.ops.engine import Engine
from pcnn.ops.recipe import NetworkPlan, Recipe
from pcnn.ops.room_levels import Meanwhile, Room, WaitsForDevice
from pcnn.ops.sites import dilated_sites, output_sites

if TYPE_CHECKING:
    from pcnn.ops.device_plan import DevicePlan, Maps

#: Layouts that are as long as the rows of their map.
_FIXED = ("table", "masks", *STEPS)


class VoxelPlan(NetworkPlan):
    """A recipe on voxels."""

    def __init__(self, recipe: Recipe, layouts: tuple[str, ...] | None, engine: Engine) -> None:
        super().__init__(recipe, layouts)
        self.engine = engine
        #: finds all maps at once where there are kernels; None: they are built one by one
        together = getattr(engine.builder, "together", False)
        self._search = cast(TableSearch, engine.builder) if together else None
        self._device_plans: dict[tuple[Triple, str, KeyFormat, bool], DevicePlan] = {}
        self._waits: dict[tuple[str, str], str | None] = {}
        #: whether some layouts list triplets, by whether backward follows
        self._lists = {both: recipe.lists_triplets(both, layouts) for both in (False, True)}

    def __call__(self, root: VoxelGrid, backward: bool) -> None:
        """Derive all levels and build all maps that are not there yet, with their layouts."""
        grids: list[VoxelGrid | None] = [root]
        maps: Maps = []
        if has_kernels(root.device):
            key = root.tensor_stride, root.downsampling, root.key_format
            with_maps = self._search is not None
            ready = self._device_plan(*key, with_maps)
            grids, maps = ready.on_grid(root, with_maps and self._lists[backward])
        self._finish(grids, maps, backward)

    def on_cells(
        self, cells: Tensor, batch_size: int | None, downsampling: str, backward: bool
    ) -> VoxelGrid:
        check_cells(cells)
        grids: list[VoxelGrid | None]
        maps: Maps = []
        if has_kernels(cells.device):
            with_maps = self._search is not None
            ready = self._device_plan((1, 1, 1), downsampling, DEFAULT_FORMAT, with_maps)
            grids, maps = ready.on_cells(cells, batch_size, with_maps and self._lists[backward])
        else:
            grids = [grid_of_cells(cells[:, 1:], cells[:, 0], batch_size, downsampling)]
        self._finish(grids, maps, backward)
        geometry = grids[0]
        assert geometry is not None
        return geometry

    def in_room(
        self,
        cells: Tensor,  # or sorted keys, as of `DevicePlan.in_room`
        count: Tensor,
        batch_size: int,
        downsampling: str,
        room: Room,
        meanwhile: Meanwhile | None = None,
    ) -> tuple[VoxelGrid, Tensor]:
        """Cells to a planned geometry for inference, in a room of fixed size; nothing waits."""
        ready = self._fixed(cells.device, downsampling)
        beside = Beside(cells.device)
        given = cells, count, batch_size, room, beside, meanwhile
        grids, maps, report = ready.in_room(*given)
        self._finish(grids, maps, False, room)
        beside.join()
        (geometry, *_) = grids
        assert geometry is not None
        return geometry, report

    def seen(self, numbers: Sequence[int], batch_size: int, downsampling: str) -> Room:
        return self._room_plan(downsampling).seen(numbers, batch_size)

    def rows_of(self, sizes: Room, downsampling: str) -> list[int]:
        """Sites of every level of the recipe, where all of them are sorted."""
        place = self._room_plan(downsampling).place
        return [sizes.rows[0], *(sizes.rows[1 + place[number]] for number in sorted(place))]

    def box_of(self, numbers: Sequence[int]) -> Box:
        """The box of a cloud, from the report of `in_room` on the host."""
        return box_of(numbers, DEFAULT_FORMAT)

    def waits(self, device: torch.device, downsampling: str) -> str | None:
        """Why `in_room` does not serve the network; ``None``: it does."""
        key = device.type, downsampling
        if key not in self._waits:
            self._waits[key] = None
            try:
                self._fixed(device, downsampling)
            except WaitsForDevice as reason:
                self._waits[key] = str(reason)
        return self._waits[key]

    def room_of(self, grid: VoxelGrid, keyed: bool = False) -> Room:
        """The room that a planned geometry of the same network takes; keyed: from sorted keys."""
        ready = self._fixed(grid.device, grid.downsampling)
        grids: list[VoxelGrid] = [grid]
        for parent, direction, kernel in self.recipe.levels:
            level = grids[parent].level(kernel, direction == "down")
            assert level is not None
            grids.append(level)
        of_stride = {grids[number].tensor_stride: grids[number].rows for number in ready.place}
        rows = grid.rows, *(of_stride[stride] for stride in ready.wanted)
        points = 0 if grid.inverse is None else len(grid.inverse)
        cut = set()
        for number, planned in enumerate(self.recipe.maps):
            built = planned.found(grids)
            for flipped in (False, True):
                if built is not None and ("fitting_steps", flipped) in built.edges.layouts:
                    tiles = len(built.edges.layouts["fitting_steps", flipped][0])
                    if tiles > -(-built.edges.rows[not flipped] // TILE_ROWS):
                        cut.add((number, flipped))
        box = grid.extent, grid.batch_size
        words = fitting_words(bitmap_words(*box, [(1, 1, 1), *ready.wanted]), grid.rows)
        whole = bool(words) and len(ready.wanted) < MAX_LEVELS and not keyed
        if not whole:
            words = fitting_words(bitmap_words(*box, ready.wanted), grid.rows)
        took = ready.passes[0], ready.passes[1]  # also where a larger box would leave bitmaps out
        return Room(points, rows, took, words, whole, frozenset(cut))

    def _fixed(self, device: torch.device, downsampling: str) -> DevicePlan:
        """The plan of a device, if nothing of it waits."""
        if not has_kernels(device) or self._search is None:
            raise WaitsForDevice(
                f"engine {self.engine.name!r} asks {device} for the number of triplets, or for one "
                "map after another"
            )
        ready = self._room_plan(downsampling)
        if len(ready.strides) <= len(self.recipe.levels):
            raise WaitsForDevice(
                "it has levels other than the floor of its input's (downsampling="
                f"{downsampling!r}, or generative layers), whose sites are counted one by one"
            )
        searched = {entry.number for entry in ready.maps}
        for number, planned in enumerate(self.recipe.maps):
            # the pairs that pooling reads have a substitute (`NetworkPlan.missing`)
            pooled = not any(use.backward for use in planned.uses)
            for name, _ in self.wanted[False][number]:
                served = name in _FIXED or (pooled and name == "pairs")
                if number not in searched or not served:
                    raise WaitsForDevice(f"a layer reads {name!r}, a list whose length is counted")
        return ready

    def _room_plan(self, downsampling: str) -> DevicePlan:
        """The plan of a room: with all maps where they are built together."""
        key = (1, 1, 1), downsampling, DEFAULT_FORMAT
        return self._device_plan(*key, with_maps=self._search is not None)

    def _device_plan(
        self, spacing: Triple, downsampling: str, key_format: KeyFormat, with_maps: bool = True
    ) -> DevicePlan:
        """The plan for sites of one spacing; without maps it makes the levels alone."""
        key = spacing, downsampling, key_format
        place = *key, with_maps
        if place not in self._device_plans:
            from pcnn.ops.device_plan import DevicePlan

            recipe = self.recipe if with_maps else Recipe(self.recipe.levels, ())
            self._device_plans[place] = DevicePlan(recipe, *key, self._search)
        return self._device_plans[place]

    def _finish(
        self,
        grids: list[VoxelGrid | None],
        maps: Maps,
        backward: bool,
        room: Room | None = None,
    ) -> None:
        """Levels and maps that are not there yet, then the layouts of all maps."""
        grids = grids + [None] * (1 + len(self.recipe.levels) - len(grids))
        maps = maps or [None] * len(self.recipe.maps)
        root = grids[0]
        assert root is not None
        for number, (parent, direction, kernel) in enumerate(self.recipe.levels, 1):
            above = grids[parent]
            if grids[number] is None and above is not None:
                if direction == "up":
                    grids[number] = above.generated(kernel)
                else:
                    derive = output_sites if kernel.is_strided else dilated_sites
                    grids[number] = derive(above, kernel)
        views: list[tuple[KernelMap, str]] = []
        resting: list[KernelMap] = []
        sectioned: list[KernelMap] | None = None if room is None else []
        for number, (planned, wanted) in enumerate(
            zip(self.recipe.maps, self.wanted[backward], strict=True)
        ):
            built = maps[number]
            if built is None:
                source, target = grids[planned.source], grids[planned.target]
                assert source is not None
                assert target is not None
                built = source.kernel_map(target, planned.kernel, self.engine)
            for name, flipped in self.missing(built, wanted):
                views.append((built.transpose() if flipped else built, name))
                if room is not None and sectioned is not None and (number, flipped) in room.cut:
                    sectioned.append(views[-1][0])
            # steps may stand for what a builder wrote where nothing reads that itself
            if not any(layout_kind(name).replaced_by_steps for name, _ in wanted):
                resting.append(built)
        if has_kernels(root.device):
            step_views(((view, name) for view, name in views if name in STEPS), sectioned)
            read_offsets(view for view, name in views if layout_kind(name).lists_triplets)
        for view, name in views:
            view.layout(name)
        for built in resting:
            built.drop_tables()


def check_cells(cells: Tensor) -> None:
    """Refuse what are no cells."""
    if cells.ndim != 2 or cells.shape[1] != 4 or cells.dtype != torch.int32:
        raise ValueError(
            f"cells must be [P, 4] int32 (batch, x, y, z), got {cells.dtype} {tuple(cells.shape)}"
        )


def grid_of_device_cells(cells: Tensor, batch_size: int | None, downsampling: str) -> VoxelGrid:
    """As `Planner.voxelize`, without levels or maps."""
    from pcnn.ops.device_plan import DevicePlan

    check_cells(cells)
    ready = DevicePlan(Recipe((), ()), (1, 1, 1), downsampling, DEFAULT_FORMAT)
    (grid,), _ = ready.on_cells(cells, batch_size, False)
    assert grid is not None
    return grid


def read_offsets(maps: Iterable[KernelMap]) -> None:
    """Give maps whose triplets are counted the layout ``offsets``: one wait for all of them."""
    unknown = {
        id(one.edges): one.edges
        for one in maps
        if one.known_triplets is None and (one.has("counts") or one.transpose().has("counts"))
    }
    if not unknown:
        return
    edges = list(unknown.values())
    counts = [KernelMap(one).layout("counts")[0] for one in edges]
    numbers = iter(pinned.read_copy(torch.cat(counts) if len(counts) > 1 else counts[0]))
    for one in edges:
        sizes = [next(numbers) for _ in range(one.volume)]
        one.layouts["offsets", False] = (torch.tensor([0, *accumulate(sizes)]),)

"""All geometries and kernel maps of a network, built at the start (Spira's network-wide indexing).

A network asks for its levels and maps while it runs, and they stay cached on the geometry. So what
it will ask for is read off a dry run (`pcnn.ops.recipe`), and replayed on every batch: on a device
in a few launches with one host sync (`pcnn.ops.device_plan`), elsewhere map by map.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pcnn.geometry import Geometry, KernelMap, PointSet, VoxelGrid, grid_of_cells
from pcnn.geometry.kernel_map import outside_inference_mode
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import layout_kind
from pcnn.geometry.packing import DEFAULT_FORMAT, KeyFormat
from pcnn.geometry.slot_tiles import TILES
from pcnn.maps import Windowed
from pcnn.maps.device_layouts import has_kernels
from pcnn.maps.tiles import tile_views
from pcnn.ops.device_plan import DevicePlan, Maps
from pcnn.ops.engine import Engine, check_geometry, resolve
from pcnn.ops.plan_memory import plan_bytes
from pcnn.ops.point_plan import PointPlan
from pcnn.ops.recipe import PointKind, Recipe, trace
from pcnn.ops.sites import Geom, output_sites

#: Layouts of one map, by (name, whether of the transposed map).
Wanted = tuple[tuple[str, bool], ...]


class Planner:
    """Builds every geometry and kernel map a model will need, for one batch after another.

    Voxels and native points are both planned, with what the model asks for on each.

    Of every map it builds the layouts that its layers' dataflows read, on the device where the
    model lies; a model that moves to another, or gets other engines, is traced again.

    Args:
        model: any module that takes a `SparseTensor`; user models need no preparation. Sites that
            a model passes to a layer by hand, other than levels of its own input, are not planned.
        layouts: names of the layouts to build of every map that a convolution reads; ``None``
            means those its dataflow needs.

    Raises:
        ValueError: the number of input channels cannot be read off the model.
    """

    def __init__(self, model: nn.Module, layouts: Sequence[str] | None = None) -> None:
        self.layouts = None if layouts is None else tuple(layouts)
        # a network owns its planner: no reference back, or neither would be freed
        self._model: Callable[[], nn.Module | None] = weakref.ref(model)
        found = ((m, getattr(m, "engine", None)) for m in model.modules())
        self._layers = [module for module, engine in found if isinstance(engine, Engine)]
        self._trace(model)

    def __getstate__(self) -> dict[str, object]:
        """Copies and pickles leave the model behind, and keep what was traced."""
        return {**self.__dict__, "_model": _no_model}

    def belongs_to(self, model: nn.Module) -> bool:
        """Whether this is a planner of that very model."""
        return self._model() is model

    @property
    def recipe(self) -> Recipe:
        """Levels and maps that the model asks for on voxels.

        Raises:
            ValueError: an engine of its layers does not serve voxels.
        """
        self._refresh()
        if not self._on_voxels:
            for engine in self._engines():
                check_geometry(engine, "voxel")
        return self._recipe

    def recipe_on(self, geometry: Geometry) -> Recipe:
        """Levels and maps that the model asks for on a geometry; errors as of a call."""
        if isinstance(geometry, PointSet):
            return self._point_plan(geometry).recipe
        return self.recipe

    def _refresh(self) -> None:
        """Trace the model again if it lies elsewhere or has other engines than when it was."""
        model = self._model()
        if model is not None and self._traced != (self._place(model), self._engines()):
            self._trace(model)

    def _point_plan(self, points: PointSet) -> PointPlan:
        """The plan for native points of a kind; traced when the first of them come."""
        self._refresh()
        kind = PointKind(points.downsampling, points.one_per_cell)
        if kind not in self._point_plans:
            model = self._model()
            if model is None:
                raise RuntimeError(
                    "this planner has outlived its model, or left it behind when it was pickled, "
                    f"and has not planned native points of the kind {kind} before: make a new "
                    "Planner(model)"
                )
            self._point_plans[kind] = PointPlan(trace(model, kind), self.layouts)
        return self._point_plans[kind]

    @property
    def engine(self) -> Engine:
        """The engine whose builder finds the triplets: that of the first layer."""
        if not self._layers:
            return resolve(None)
        engine: Engine = self._layers[0].engine  # type: ignore[assignment]
        return engine

    def _engines(self) -> tuple[Engine, ...]:
        engines: list[Engine] = [module.engine for module in self._layers]  # type: ignore[misc]
        return tuple(engines)

    def _place(self, model: nn.Module) -> str:
        """Type of the device where a model lies."""
        # a layer's own dictionary: a walk over the model takes as long as several launches
        own = (w for layer in self._layers for w in layer._parameters.values() if w is not None)
        parameter = next(own, None)
        if parameter is None:
            parameter = next(model.parameters(), None)
        return "cpu" if parameter is None else parameter.device.type

    def _trace(self, model: nn.Module) -> None:
        self._on_voxels = all(engine.serves_geometry("voxel") for engine in self._engines())
        self._recipe: Recipe = trace(model) if self._on_voxels else Recipe((), ())
        #: plans for native points, by their kind
        self._point_plans: dict[PointKind, PointPlan] = {}
        self._traced = self._place(model), self._engines()
        self._device_plans: dict[tuple[Triple, str, KeyFormat], DevicePlan] = {}
        #: layouts of every map, by whether backward follows
        self._wanted: dict[bool, list[Wanted]] = {}
        #: whether tiles may stand for what a map's builder wrote, as nobody reads that itself
        self._rests: dict[bool, list[bool]] = {}
        #: whether some of them list triplets
        self._lists: dict[bool, bool] = {}
        for both in (False, True):
            maps = self._recipe.maps
            self._wanted[both] = [planned.layouts(both, self.layouts) for planned in maps]
            self._rests[both] = [
                not any(layout_kind(name).replaced_by_tiles for name, _ in wanted)
                for wanted in self._wanted[both]
            ]
            self._lists[both] = self._recipe.lists_triplets(both, self.layouts)

    def __call__(self, geometry: Geom, backward: bool | None = None) -> Geom:
        """Derive all levels and build all maps of a geometry that are not there yet.

        Args:
            geometry: the voxels or points of a batch.
            backward: whether to build what backward reads too; ``None``: if gradients are enabled.

        Returns:
            The geometry itself.

        Raises:
            ValueError: an engine of the model's layers does not serve the geometry.
        """
        both = torch.is_grad_enabled() if backward is None else backward
        if self.is_planned(geometry, both):  # which traces again what has changed
            return geometry
        with outside_inference_mode():
            if isinstance(geometry, PointSet):
                self._point_plan(geometry)(geometry, both)
            else:
                assert isinstance(geometry, VoxelGrid)
                self._plan_voxels(geometry, both)
        return geometry

    def memory(self, geometry: Geometry, backward: bool | None = None) -> int:
        """Bytes that the kernel maps of a geometry take at most; nothing is built.

        See `pcnn.ops.plan_memory.plan_bytes`.

        Args:
            geometry: the voxels or points of a batch.
            backward: as in a call.

        Raises:
            ValueError: as a call.
        """
        both = torch.is_grad_enabled() if backward is None else backward
        return plan_bytes(self.recipe_on(geometry), geometry, both, self.layouts)

    def _plan_voxels(self, geometry: VoxelGrid, both: bool) -> None:
        grids: list[VoxelGrid | None] = [geometry]
        maps: Maps = []
        if self.is_batched(geometry.device):
            ready = self._device_plan(
                geometry.tensor_stride, geometry.downsampling, geometry.key_format
            )
            grids, maps = ready.on_grid(geometry, self._lists[both])
        self._finish(grids, maps, both)

    def is_planned(self, geometry: Geometry, backward: bool) -> bool:
        """Whether all that a call would build is there already."""
        if isinstance(geometry, PointSet):
            return self._point_plan(geometry).is_planned(geometry, backward)
        grids, recipe = [geometry], self.recipe
        for parent, direction, kernel in recipe.levels:
            level = grids[parent].level(kernel, direction == "down")
            if level is None:
                return False
            grids.append(level)
        for planned, wanted in zip(recipe.maps, self._wanted[backward], strict=True):
            built = grids[planned.source].cached_map(grids[planned.target], planned.kernel)
            if built is None or not all(key in built.edges.layouts for key in wanted):
                return False
        return True

    def voxelize(
        self,
        cells: Tensor,
        batch_size: int | None = None,
        *,
        downsampling: str = "floor",
        backward: bool = False,
    ) -> VoxelGrid:
        """Geometry of integer cells in any order, planned in the same go.

        Args:
            cells: ``[P, 4]`` int32 (batch, x, y, z); duplicates are merged.
            batch_size: number of clouds; ``None`` means the largest batch index + 1.
            downsampling: output sites of strided convolutions, ``floor`` or ``reached``.
            backward: as in a call.

        Returns:
            The geometry; ``inverse`` ``[P]`` holds the row of every cell.

        Raises:
            ValueError: wrong shape or dtype, or cells beyond the packed keys.
        """
        _check_cells(cells)
        _ = self.recipe  # refuses engines that do not serve voxels
        grids: list[VoxelGrid | None]
        maps: Maps = []
        with outside_inference_mode():
            if self.is_batched(cells.device):
                ready = self._device_plan((1, 1, 1), downsampling, DEFAULT_FORMAT)
                grids, maps = ready.on_cells(cells, batch_size, self._lists[backward])
            else:
                grids = [grid_of_cells(cells[:, 1:], cells[:, 0], batch_size, downsampling)]
            self._finish(grids, maps, backward)
        geometry = grids[0]
        assert geometry is not None
        return geometry

    def is_batched(self, device: torch.device) -> bool:
        """Whether a device's kernels build all maps at once."""
        return isinstance(self.engine.builder_on(device), Windowed) and has_kernels(device)

    def _device_plan(self, spacing: Triple, downsampling: str, key_format: KeyFormat) -> DevicePlan:
        key = spacing, downsampling, key_format
        if key not in self._device_plans:
            self._device_plans[key] = DevicePlan(self._recipe, *key)
        return self._device_plans[key]

    def _finish(self, grids: list[VoxelGrid | None], maps: Maps, backward: bool) -> None:
        """Levels and maps that are not there yet, then the layouts of all maps."""
        grids = grids + [None] * (1 + len(self._recipe.levels) - len(grids))
        maps = maps or [None] * len(self._recipe.maps)
        for number, (parent, direction, kernel) in enumerate(self._recipe.levels, 1):
            above = grids[parent]
            if grids[number] is None and above is not None:
                down = direction == "down"
                grids[number] = output_sites(above, kernel) if down else above.generated(kernel)
        views: list[tuple[KernelMap, str]] = []
        resting: list[KernelMap] = []
        asked = self._wanted[backward], self._rests[backward]
        for planned, built, wanted, rests in zip(self._recipe.maps, maps, *asked, strict=True):
            if built is None:
                source, target = grids[planned.source], grids[planned.target]
                assert source is not None
                assert target is not None
                built = source.kernel_map(target, planned.kernel, self.engine)
            there = built.edges.layouts
            for name, flipped in wanted:
                if (name, flipped) not in there:
                    views.append((built.transpose() if flipped else built, name))
            if rests:
                resting.append(built)
        if self.is_batched(_device(grids)):
            tile_views((view, name) for view, name in views if name in TILES)
        for view, name in views:
            view.layout(name)
        for built in resting:
            built.drop_tables()


def _no_model() -> None:
    """What a weak reference to a model that is gone returns."""


def _check_cells(cells: Tensor) -> None:
    if cells.ndim != 2 or cells.shape[1] != 4 or cells.dtype != torch.int32:
        raise ValueError(
            f"cells must be [P, 4] int32 (batch, x, y, z), got {cells.dtype} {tuple(cells.shape)}"
        )


def grid_of_device_cells(cells: Tensor, batch_size: int | None, downsampling: str) -> VoxelGrid:
    """Geometry of integer cells on a device with kernels, without levels or maps.

    Args and errors as in `Planner.voxelize`.
    """
    _check_cells(cells)
    ready = DevicePlan(Recipe((), ()), (1, 1, 1), downsampling, DEFAULT_FORMAT)
    (grid,), _ = ready.on_cells(cells, batch_size, False)
    assert grid is not None
    return grid


def _device(grids: list[VoxelGrid | None]) -> torch.device:
    root = grids[0]
    assert root is not None
    return root.device


def plan(model: nn.Module, geometry: Geom) -> Geom:
    """Build every geometry and kernel map that ``model`` needs on ``geometry``.

    For one batch; in a loop keep a `Planner`, which traces the model once. Networks that plan by
    themselves (`pcnn.nn.PlannedModule`) have one.

    Raises:
        TypeError: a tensor in place of its geometry.
        ValueError: as a call of `Planner`.
    """
    if not isinstance(geometry, VoxelGrid | PointSet):
        raise TypeError(
            f"plan takes a geometry, got a {type(geometry).__name__}: of a sparse tensor x give "
            "x.geometry"
        )
    own = getattr(model, "planner", None)
    return (own if isinstance(own, Planner) else Planner(model))(geometry)

"""All geometries and kernel maps of a network, built at the start (Spira's network-wide indexing).

A network asks for its levels and maps while it runs, and they stay cached on the geometry. So what
it will ask for is read off a dry run (`pcnn.ops.recipe`), and replayed on every batch: on a device
in a few launches with one host sync (`pcnn.ops.device_plan`), elsewhere map by map.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.geometry import Geometry, KernelMap, PointSet, VoxelGrid
from pcnn.geometry.kernel_map import outside_inference_mode
from pcnn.maps.base import has_kernels
from pcnn.maps.levels import Step, point_levels
from pcnn.maps.point_memory import PendingMap
from pcnn.maps.radius import RadiusSearch, counted_maps
from pcnn.maps.radix_sort import MAX_PASSES
from pcnn.ops.engine import Engine, resolve
from pcnn.ops.recipe import NetworkPlan, Recipe, trace
from pcnn.ops.sites import Geom
from pcnn.ops.voxel_plan import VoxelPlan


class PointPlan(NetworkPlan):
    """A recipe on native points of one kind: one wait for the levels, one for all maps.

    Without device kernels map after map.
    """

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
        if has_kernels(root.device) and not root.levels():
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
        planned, counted = self.recipe.maps, dict[int, PendingMap]()
        maps: list[KernelMap | None] = [one.found(sets) for one in planned]
        ends = [(sets[one.source], sets[one.target], one.kernel) for one in planned]
        missing = [number for number, built in enumerate(maps) if built is None]
        searched = [at for at in missing if isinstance(planned[at].builder, RadiusSearch)]
        found = counted_maps([ends[number] for number in searched])
        for number, pending in zip(searched, found, strict=True):
            if pending is not None:
                counted[number] = pending
        for number in sorted(set(missing) - set(counted)):
            builder, (source, target, kernel) = planned[number].builder, ends[number]
            assert builder is not None
            maps[number] = source.map_to(target, kernel, builder)
        finished = PendingMap.finish_all(list(counted.values()), sets[0])
        for number, built in zip(counted, finished, strict=True):
            source, target, kernel = ends[number]
            maps[number] = source.add_map(target, kernel, built, planned[number].builder)
        return [built for built in maps if built is not None]


class Planner:
    """Builds every geometry and kernel map a model will need, for one batch after another.

    Voxels and native points are both planned, with what the model asks for on each.

    Of every map it builds the layouts that its layers' dataflows read, on the device where the
    model lies; a model that moves to another, or gets other engines, is traced again.

    Args:
        model: any module that takes a `SparseTensor`; user models need no preparation. Sites that
            a model passes to a layer by hand, other than levels of its own input, are not planned.

    Raises:
        ValueError: the number of input channels cannot be read off the model.
    """

    def __init__(self, model: nn.Module) -> None:
        # a network owns its planner: no reference back, or neither would be freed
        self._model: Callable[[], nn.Module | None] = weakref.ref(model)
        found = ((m, getattr(m, "engine", None)) for m in model.modules())
        self._layers = [module for module, engine in found if isinstance(engine, Engine)]
        self._trace(model)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a network has a planner of its own."""
        return type(None), ()

    def belongs_to(self, model: nn.Module) -> bool:
        """True if this is a planner of that very model."""
        return self._model() is model

    @property
    def recipe(self) -> Recipe:
        """Levels and maps that the model asks for on voxels; errors as of a call."""
        return self._plan(None).recipe

    def recipe_on(self, geometry: Geometry) -> Recipe:
        """Levels and maps that the model asks for on a geometry; errors as of a call."""
        return self._plan(geometry.plan_kind).recipe

    def _plan(self, kind: bool | None) -> NetworkPlan:
        """The plan for a kind of native points, ``None`` for voxels; traced when it is missing."""
        model = self._model()
        # a model that lies elsewhere or has other engines is traced again
        if model is not None and self._traced != (self.device.type, self._engines()):
            self._trace(model)
        if kind not in self._plans:
            if kind is None:
                for engine in self._engines():
                    engine.check("voxel")
            if model is None:
                raise RuntimeError(
                    f"this planner has outlived its model before it planned points of kind {kind}"
                )
            self._plans[kind] = PointPlan(trace(model, kind))
        return self._plans[kind]

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

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        # a layer's own dictionary: a walk over the model takes as long as several launches
        own = (w for layer in self._layers for w in layer._parameters.values() if w is not None)
        parameter, model = next(own, None), self._model()
        if parameter is None and model is not None:
            parameter = next(model.parameters(), None)
        return torch.device("cpu") if parameter is None else parameter.device

    def _trace(self, model: nn.Module) -> None:
        self._traced = self.device.type, self._engines()
        #: by the kind of native points, ``None`` for voxels
        self._plans: dict[bool | None, NetworkPlan] = {}
        if all(engine.serves("voxel") for engine in self._engines()):
            self._plans[None] = VoxelPlan(trace(model), self.engine)

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
        plan = self._plan(geometry.plan_kind)
        if not plan.is_planned(geometry, both):
            with outside_inference_mode():
                plan(geometry, both)
        return geometry

    def is_planned(self, geometry: Geometry, backward: bool) -> bool:
        """True if all that a call would build is there already."""
        return self._plan(geometry.plan_kind).is_planned(geometry, backward)

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
        if cells.ndim != 2 or cells.shape[1] != 4 or cells.dtype != torch.int32:
            raise ValueError(
                f"cells must be [P, 4] int32 (batch, x, y, z), got {cells.dtype} "
                f"{tuple(cells.shape)}"
            )
        with outside_inference_mode():
            return self.on_voxels(cells, backward, batch_size, downsampling)

    @property
    def on_voxels(self) -> VoxelPlan:
        """The plan for voxels; errors as of a call."""
        plan = self._plan(None)
        assert isinstance(plan, VoxelPlan)
        return plan


def plan(model: nn.Module, geometry: Geom) -> Geom:
    """Build every geometry and kernel map that ``model`` needs on ``geometry``.

    For one batch; in a loop keep a `Planner`, which traces the model once. Networks that plan by
    themselves (`pcnn.nn.PlannedModule`) have one.

    Raises:
        TypeError: a tensor in place of its geometry.
        ValueError: as a call of `Planner`.
    """
    if not isinstance(geometry, Geometry):
        raise TypeError(
            f"plan takes a geometry, got a {type(geometry).__name__}: of a sparse tensor x give "
            "x.geometry"
        )
    own = getattr(model, "planner", None)
    return (own if isinstance(own, Planner) else Planner(model))(geometry)

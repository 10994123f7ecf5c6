"""Levels and maps that a network asks for, read off a dry run on two sites."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from pcnn.geometry import Geometry, Kernel, KernelMap, grid_of_cells, point_set_of
from pcnn.geometry.base import Builder
from pcnn.geometry.kernel_map import LayoutUse
from pcnn.geometry.layouts import layout_kind
from pcnn.geometry.tile_steps import STEPS, is_huge
from pcnn.kernels.recorded import recorded
from pcnn.kernels.streams import read_copy
from pcnn.maps.base import has_kernels
from pcnn.maps.tile_steps import step_views
from pcnn.tensor import SparseTensor

#: Name of a layout, and whether it is of the transposed map.
Key = tuple[str, bool]
#: Layouts of one map.
Wanted = tuple[Key, ...]


@dataclass(frozen=True)
class PlannedMap:
    """One kernel map of a network."""

    source: int  # number of the input level
    target: int  # number of the output level
    kernel: Kernel  # the relation
    uses: frozenset[LayoutUse]  # what operations read of it
    builder: Builder | None = None  # whose map it is, on native points

    def found(self, sites: Sequence[Geometry]) -> KernelMap | None:
        """The map between two of the levels, if it is built."""
        return sites[self.source].cached_map(sites[self.target], self.kernel, self.builder)

    def layouts(self, backward: bool) -> Wanted:
        """Layouts that are read, by (name, whether of the transposed map)."""
        return _layouts_of(self.uses, backward)


@dataclass(frozen=True)
class Recipe:
    """Levels and maps of a network, in terms of each other; level 0 is the input's geometry."""

    #: (number of the parent, ``down`` or ``up``, kernel) of every level after level 0
    levels: tuple[tuple[int, str, Kernel], ...]
    maps: tuple[PlannedMap, ...]  # the maps between them

    def levels_of(self, root: Geometry) -> list[Any]:
        """A geometry and its levels, in the order of the recipe; ``None`` for those not there."""
        found: list[Any] = [root]
        for parent, direction, kernel in self.levels:
            above = found[parent]
            found.append(None if above is None else above.level(kernel, direction == "down"))
        return found


@functools.cache  # asked for every map of every step
def _layouts_of(uses: frozenset[LayoutUse], backward: bool) -> Wanted:
    found: set[tuple[str, bool]] = set()
    for flipped, forward, again, transposed in uses:
        found.update((name, flipped) for name in forward)
        if backward:
            found.update((name, flipped) for name in again)
            found.update((name, not flipped) for name in transposed)
    return tuple(sorted(found, key=lambda key: (key[1], key[0])))


class NetworkPlan:
    """A recipe on geometries of one kind, for one batch after another."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        #: layouts of every map, by whether backward follows
        self.wanted = {
            both: [planned.layouts(both) for planned in recipe.maps] for both in (False, True)
        }
        #: their names
        self.names = {
            both: {name for wanted in maps for name, _ in wanted}
            for both, maps in self.wanted.items()
        }

    def is_planned(self, root: Geometry, backward: bool) -> bool:
        """True if all that a call would build is there already."""
        sites = self.recipe.levels_of(root)
        if any(level is None for level in sites):
            return False
        for planned, wanted in zip(self.recipe.maps, self.wanted[backward], strict=True):
            built = planned.found(sites)
            if built is None or self.missing(built, wanted):
                return False
        return True

    def missing(self, built: KernelMap, wanted: Wanted) -> Sequence[Key]:
        """Layouts to build of a map."""
        there = built.edges.layouts
        missing = [key for key in wanted if key not in there]
        if missing and is_huge(built):
            # the dry run met no such map: the layers choose again, or say that nothing serves it
            return [key for key in missing if key[0] not in STEPS]
        return missing

    def lay_out(
        self,
        maps: Sequence[KernelMap],
        backward: bool,
        device: torch.device,
        cut: Collection[tuple[int, bool]] | None = None,  # as of `pcnn.ops.device_plan.Room`
    ) -> None:
        """Build the layouts of all maps that are not there yet, and free what steps stand for."""
        views: list[tuple[KernelMap, str]] = []
        sectioned: list[KernelMap] = []
        pairs = list(zip(maps, self.wanted[backward], strict=True))
        for number, (built, wanted) in enumerate(pairs):
            for name, flipped in self.missing(built, wanted):
                views.append((built.transpose() if flipped else built, name))
                if cut and (number, flipped) in cut:
                    sectioned.append(views[-1][0])
        if has_kernels(device):
            steps = ((view, name) for view, name in views if name in STEPS)
            # sums over all rows, as in gradients of linear layers, meet zeros in spare ones
            step_views(steps, None if cut is None else sectioned, spare=backward)
            if cut is None:  # a room holds pairs without them
                _read_offsets(view for view, name in views if layout_kind(name).lists_triplets)
        for view, name in views:
            view.layout(name)
        for built, wanted in pairs:
            _give_up(built, wanted)

    def __call__(self, given: Any, backward: bool) -> Any:
        """Derive all levels and build all maps that are not there yet, with their layouts."""
        raise NotImplementedError


def _read_offsets(maps: Iterable[KernelMap]) -> None:
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
    numbers = iter(read_copy(torch.cat(counts) if len(counts) > 1 else counts[0]))
    for one in edges:
        sizes = [next(numbers) for _ in range(one.volume)]
        one.layouts["offsets", False] = (torch.tensor([0, *accumulate(sizes)]),)


def _give_up(built: KernelMap, wanted: Wanted) -> None:
    """Free layouts that steps were made from and no layer reads; a map can derive them again."""
    layouts = built.edges.layouts
    if not any(layout_kind(name).replaced_by_steps for name, _ in wanted):
        built.drop_tables()
    for key in (("rows_csr", False), ("rows_csr", True)):
        stepped = any((name, key[1]) in layouts for name in STEPS)
        if key not in wanted and stepped and ("pairs", False) in layouts:
            layouts.pop(key, None)


def trace(model: nn.Module, kind: bool | None = None) -> Recipe:
    """Find the levels and maps of a model by a dry run on two sites, in evaluation mode."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(1))
    grid: Geometry
    if kind is None:
        cells = torch.tensor([[0, 0, 0], [1, 0, 0]], device=parameter.device)
        grid = grid_of_cells(cells)
    else:
        places = [[0.5, 0.5, 0.5], [1.5 if kind else 0.6, 0.5, 0.5]]
        grid = point_set_of(torch.tensor(places, device=parameter.device))
    # without gradients only a leaf requires one: so a layer that reads the input itself knows it
    features = parameter.new_zeros(grid.rows, _input_channels(model)).requires_grad_()
    flags = [(module, module.training) for module in model.modules()]
    # networks that plan their input by themselves would begin a dry run of their own
    planning = [m for m in model.modules() if getattr(m, "plans_input", False) is True]
    for module in planning:
        module.plans_input = False  # type: ignore[assignment]
    # by their flags: eval() drops folded norms, whose memory graphs read
    for module, _ in flags:
        module.training = False
    try:
        with torch.no_grad(), recorded():
            model(SparseTensor(features, grid))
    finally:
        for module, training in flags:
            module.training = training
        for module in planning:
            module.plans_input = True  # type: ignore[assignment]
    return _read(grid)


def _input_channels(model: nn.Module) -> int:
    for module, name in ((m, n) for m in model.modules() for n in ("in_channels", "in_features")):
        channels = getattr(module, name, None)
        if isinstance(channels, int):
            return channels
    raise ValueError(
        f"{type(model).__name__} has no module with in_channels or in_features, so its number of "
        "input channels is unknown; set model.in_channels"
    )


def _read(root: Geometry) -> Recipe:
    """Recipe of the levels and maps that are cached on a geometry."""
    grids: list[Geometry] = [root]
    levels = []
    position = 0
    while position < len(grids):  # breadth first: a parent comes before its children
        for (kernel, down), child in grids[position].levels().items():
            levels.append((position, "down" if down else "up", kernel))
            grids.append(child)
        position += 1
    number = {grid: index for index, grid in enumerate(grids)}
    maps = []
    for source in grids:
        for target in grids:
            for (kernel, builder), kernel_map in source.maps_to(target).items():
                uses = frozenset(kernel_map.edges.uses)
                places = number[source], number[target]
                maps.append(PlannedMap(*places, kernel, uses, builder))
    return Recipe(tuple(levels), tuple(maps))

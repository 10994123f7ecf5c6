"""Memory of fixed size with the plan inside, for networks on voxels.

A graph holds tensors of one size, so the points of an input are a capacity, and so are the rows of
every level, of which the first ``count`` are sites (`pcnn.ops.device_plan.Room`). On voxels levels
and maps are made inside of the graph, which reports how many sites there were: an input with more
than there is room for has given no result. What a graph cannot plan is planned before, and copied
(`pcnn.graphs.fixed_input`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry import Geometry, VoxelGrid
from pcnn.geometry.checks import check_finite
from pcnn.geometry.kernel_map import outside_inference_mode
from pcnn.geometry.packing import SENTINEL
from pcnn.graphs.fixed_input import HEADROOM, Edges, FixedInput, Planned, Unfit, in_tiles, levels_of
from pcnn.graphs.outputs import Copies, Levels
from pcnn.maps.cell_bits import fitting_words
from pcnn.maps.levels import box_of
from pcnn.maps.place import Part, place
from pcnn.ops.device_plan import Room, bound_of
from pcnn.ops.plan import Planner
from pcnn.ops.voxel_plan import VoxelPlan
from pcnn.ops.voxelize import cells_of_points, reduce_by_row
from pcnn.tensor import SparseTensor

#: Points, features, batch index, and number of clouds.
Cloud = tuple[Tensor, Tensor, Tensor | None, int]


class VoxelMemory:
    """Sorted keys of a voxel grid and their features."""

    def __init__(
        self, plan: VoxelPlan, x: SparseTensor, room: Room, backward: bool = False
    ) -> None:
        assert isinstance(x.geometry, VoxelGrid)
        self._plan, self.room, self._backward = plan, room, backward
        none = x.geometry.keys[:0].clone()
        self._like = replace(x.geometry, keys=none, inverse=None, check=False)
        rows, device = room.points, x.device
        self._count = torch.zeros(1, dtype=torch.int32, device=device)
        self._keys = torch.full((rows,), SENTINEL, dtype=torch.int64, device=device)
        self._features = x.features.new_zeros(rows, x.channels)
        self.report: Tensor | None = None
        self.tensor = x

    def check(self) -> None:
        """Nothing: all of it is made of every input."""

    def take(self, given: Any) -> None:
        """Copy an input to the memory."""
        at, none = given.geometry, self._count[:0]
        # gradients are sums over all rows
        features = Part(self._features, given.features, 0 if self._backward else None)
        place([Part(self._count, none, at.rows), features, Part(self._keys, at.keys, SENTINEL)])

    def plan(self) -> None:
        """Launch what makes levels and maps of it; captured."""
        grid, self.report = self._plan.in_room(
            self._keys, self._count, self._like.batch_size, self.room, backward=self._backward
        )
        self.tensor = SparseTensor(self._features, grid)

    @property
    def levels(self) -> list[Geometry]:
        """The levels of `tensor`, in the order of the recipe."""
        return levels_of(self._plan.recipe, self.tensor)

    def sites(
        self, given: Any, wanted: set[int], copies: Copies
    ) -> Callable[[Sequence[int], Sequence[int]], Levels]:
        """Copies of the wanted levels, and what makes exact geometries of them.

        That takes the rows of all levels and the numbers of the report.
        """
        steps = self._plan.recipe.levels
        needed = set(wanted)
        for number in range(len(steps), 0, -1):  # a level is made of the finer one
            if number in needed:
                needed.add(steps[number - 1][0])
        fixed = self.levels if needed - {0} else []
        made = {}
        with outside_inference_mode():
            root = self._root(given, copies)
            for number in sorted(needed - {0}):
                own = fixed[number]
                assert own.inverse is not None
                made[number] = own, copies.of(own.keys), copies.of(own.inverse)

        def exact(rows: Sequence[int], numbers: Sequence[int]) -> Levels:
            found: list[Geometry | None] = [root(rows[0], numbers), *[None] * len(steps)]
            for number, (own, keys, inverse) in made.items():
                parent, _, kernel = steps[number - 1]
                finer = found[parent]
                assert isinstance(finer, VoxelGrid)
                level = finer.level(kernel)
                if level is None:
                    with outside_inference_mode():
                        parts = keys[: rows[number]], inverse[: rows[parent]]
                    level = finer.keep_level(kernel, finer.floor_level(own.tensor_stride, *parts))
                found[number] = level
            return found

        return exact

    def rows(self, given: Any, numbers: Sequence[int]) -> list[int]:
        """Rows of all levels, from the numbers of the report; `Unfit` where there is no room."""
        plan = self._plan.fixed
        seen = plan.seen(numbers, self._like.batch_size, bool(self.room.triplets))
        if not self.room.holds(seen):
            raise Unfit
        return [seen.rows[plan.place[number]] for number in range(len(plan.place))]

    def _root(self, given: Any, copies: Copies) -> Callable[[int, Sequence[int]], VoxelGrid]:
        """Copies of the finest level, and what makes it of its rows and the report."""
        grid: VoxelGrid = given.geometry
        return lambda rows, numbers: grid


class CloudMemory(VoxelMemory):
    """Points, features and batch index of clouds, and their way to voxels."""

    def __init__(
        self,
        plan: VoxelPlan,
        x: SparseTensor,
        room: Room,
        cloud: Cloud,
        voxel_size: Sequence[float],
        reduce: str,
    ) -> None:
        super().__init__(plan, x, room)
        points, features, batch, _ = cloud
        rows, device = room.points, x.device
        self._voxel_size, self._reduce, self._dtype = voxel_size, reduce, x.dtype
        self._points = torch.zeros(rows, 3, dtype=points.dtype, device=device)
        self._values = torch.zeros(rows, x.channels, dtype=features.dtype, device=device)
        self._clouds = None
        if batch is not None:
            self._clouds = torch.zeros(rows, dtype=torch.int32, device=device)

    def take(self, given: Cloud) -> None:
        points, features, clouds, _ = given
        pairs = (self._points, points), (self._values, features), (self._clouds, clouds)
        parts = [Part(own, one) for own, one in pairs if own is not None and one is not None]
        place([Part(self._count, self._count[:0], len(points)), *parts])

    def plan(self) -> None:
        inputs = torch.empty(0)

        def reduce_points(order: Tensor, inverse: Tensor, rows: int) -> None:
            nonlocal inputs
            given = order, inverse, rows, self._reduce, self._count
            inputs = reduce_by_row(self._values, *given).to(self._dtype)

        cells = cells_of_points(self._points, self._clouds, self._voxel_size)
        grid, self.report = self._plan.in_room(
            cells, self._count, self._like.batch_size, self.room, reduce_points
        )
        self.tensor = SparseTensor(inputs, grid)

    def rows(self, given: Cloud, numbers: Sequence[int]) -> list[int]:
        try:
            return super().rows(given, numbers)
        except ValueError:
            check_finite(given[0])  # such a point falls nowhere: name it rather than its cell
            raise

    def _root(self, given: Cloud, copies: Copies) -> Callable[[int, Sequence[int]], VoxelGrid]:
        fixed, number = self.tensor.geometry, len(given[0])
        assert isinstance(fixed, VoxelGrid)
        assert fixed.inverse is not None
        assert fixed.order is not None
        keys, inverse = copies.of(fixed.keys), copies.of(fixed.inverse, number)
        order = copies.of(fixed.order, number)

        def exact(rows: int, numbers: Sequence[int]) -> VoxelGrid:
            box = box_of(numbers)
            with outside_inference_mode():
                own = {"keys": keys[:rows], "inverse": inverse, "bound": bound_of(box), "box": box}
            return replace(self._like, **own, check=False).keep_order(order)  # type: ignore[arg-type]

        return exact


def plans_inside(x: SparseTensor, planner: Planner, backward: bool) -> bool:
    """True if levels and maps of an input are made in its graph."""
    at = x.geometry
    if not isinstance(at, VoxelGrid):
        return False
    plain = at.tensor_stride == (1, 1, 1) and at.spatial_shape is None
    served = plain and at.downsampling == "floor" and at.count is None
    return served and planner.on_voxels.serves_rooms(at.device, backward)


def memory_for(
    item: Any,
    x: SparseTensor,  # planned
    planner: Planner,  # that did so
    own: Planner,  # of the network that is captured
    edges: Edges,
    before: Any = None,
    backward: bool = False,
) -> Any:
    """Memory for an input and others like it, and for all that fits the room before."""
    if isinstance(item, Planned):
        sizes = item.sizes.room(edges)
        sizes = sizes if before is None else sizes.joined(before)
        return FixedInput(own.recipe_on(x.geometry), item, sizes, backward)
    room = room_for(planner, x, edges.above(len(x)), edges, before, True, backward)
    return VoxelMemory(own.on_voxels, x, room, backward)


def room_for(
    planner: Planner,
    x: SparseTensor,
    points: int,
    edges: Edges,
    old: Room | None,
    keyed: bool,
    backward: bool = False,
) -> Room:
    """Sizes for a planned input and others like it, of so many points or keys at most."""
    assert isinstance(x.geometry, VoxelGrid)
    plan = planner.on_voxels
    sizes = plan.fixed.room_of(x.geometry, keyed, plan.lists[backward])
    rows = [edges.above(int(HEADROOM * n)) for n in sizes.rows]
    if keyed:
        rows[0] = points
    growth = HEADROOM * points / max(1, sizes.rows[0])
    triplets = [in_tiles(growth * n) for n in sizes.triplets]
    words, whole, passes, cut = sizes.words, sizes.whole, sizes.passes, sizes.cut
    if words:  # of extents along three axes
        words = fitting_words(words, sizes.rows[0], HEADROOM**3)
    if old is not None:
        rows, triplets = list(map(max, rows, old.rows)), list(map(max, triplets, old.triplets))
        words = max(words, old.words) if words else 0
        whole &= old.whole
        passes = max(passes[0], old.passes[0]), max(passes[1], old.passes[1])
        cut = old.cut
    return Room(points, tuple(rows), passes, words, whole, cut, tuple(triplets))

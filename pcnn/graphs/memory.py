"""What a network is called with in inference, and its memory of fixed size with the plan inside.

A graph holds tensors of one size, so the points of an input are a capacity, and so are the rows of
every level, of which the first ``count`` are sites (`pcnn.ops.device_plan.Room`). On voxels levels
and maps are made inside of the graph, which reports how many sites there were: an input with more
than there is room for has given no result. What a graph cannot plan is planned before, and copied
(`pcnn.graphs.fixed_input`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from pcnn.geometry import Geometry, VoxelGrid
from pcnn.geometry.checks import check_finite
from pcnn.geometry.kernel_map import outside_inference_mode
from pcnn.geometry.packing import SENTINEL
from pcnn.graphs.capture import NoGraph
from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.outputs import Copies
from pcnn.graphs.sizes import HEADROOM, Edges, Planned, Unfit, levels_of
from pcnn.maps.cell_bits import fitting_words
from pcnn.maps.levels import box_of
from pcnn.maps.place import Part, place
from pcnn.maps.voxel_points import cells_of_points, reduce_by_row
from pcnn.ops.device_plan import Room, bound_of
from pcnn.ops.plan import Planner
from pcnn.ops.voxel_plan import VoxelPlan
from pcnn.ops.voxelize import voxelize
from pcnn.tensor import SparseTensor

#: A part of an input has so many times fewer rows.
FEWER = 4
#: Points, features, batch index, and number of clouds.
Cloud = tuple[Tensor, Tensor, Tensor | None, int]
Levels = list[Geometry | None]


class Memory(Protocol):
    """Memory that takes one input after another."""

    tensor: SparseTensor  # the network's input, with levels and maps, once `plan` was launched
    report: Tensor | None  # what the plan saw, for `sites`; None: it fits

    def take(self, given: Any) -> None:
        """Copy an input to the memory."""

    def plan(self) -> None:
        """Launch what makes levels and maps of it; captured."""

    def check(self) -> None:
        """Once the network ran: `NoGraph` if it reads what is not made of every input."""

    @property
    def levels(self) -> list[Geometry]:
        """The levels of `tensor`, in the order of the recipe."""

    def sites(self, given: Any, numbers: Sequence[int], wanted: set[int], copies: Copies) -> Levels:
        """Exact geometries of the wanted levels, of the numbers of the report; else `Unfit`."""


class VoxelMemory:
    """Sorted keys of a voxel grid and their features; what `Clouds` and `Grids` share."""

    def __init__(self, plan: VoxelPlan, x: SparseTensor, room: Room) -> None:
        assert isinstance(x.geometry, VoxelGrid)
        self._plan, self.room = plan, room
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

    def take(self, given: SparseTensor) -> None:
        at, none = given.geometry, self._count[:0]
        parts = [Part(self._count, none, at.rows), Part(self._features, given.features)]
        place([*parts, Part(self._keys, at.keys, SENTINEL)])

    def plan(self) -> None:
        grid, self.report = self._plan.in_room(
            self._keys, self._count, self._like.batch_size, self.room
        )
        self.tensor = SparseTensor(self._features, grid)

    @property
    def levels(self) -> list[Geometry]:
        return levels_of(self._plan.recipe, self.tensor)

    def sites(
        self, given: SparseTensor, numbers: Sequence[int], wanted: set[int], copies: Copies
    ) -> Levels:
        assert isinstance(given.geometry, VoxelGrid)
        rows = [given.geometry.rows, *self._rows(numbers)[1:]]
        return self._sites(given.geometry, rows, wanted, copies)

    def _rows(self, numbers: Sequence[int]) -> list[int]:
        plan = self._plan.fixed
        seen = plan.seen(numbers, self._like.batch_size)
        if not self.room.holds(seen):
            raise Unfit
        return [seen.rows[plan.place[number]] for number in range(len(plan.place))]

    def _sites(
        self, root: VoxelGrid, rows: Sequence[int], wanted: set[int], copies: Copies
    ) -> Levels:
        steps = self._plan.recipe.levels
        needed = set(wanted)
        for number in range(len(steps), 0, -1):  # a level is made of the finer one
            if number in needed:
                needed.add(steps[number - 1][0])
        found: Levels = [root, *[None] * len(steps)]
        if needed <= {0}:
            return found
        fixed, made = self.levels, {}
        for number in sorted(needed - {0}):
            own, many = fixed[number], rows[steps[number - 1][0]]
            assert own.inverse is not None
            with outside_inference_mode():
                made[number] = copies.of(own.keys, rows[number]), copies.of(own.inverse, many)
        copies.fill()
        for number, (keys, inverse) in made.items():
            parent, _, kernel = steps[number - 1]
            finer, stride = found[parent], fixed[number].tensor_stride
            assert isinstance(finer, VoxelGrid)
            level = finer.level(kernel)
            if level is None:
                level = finer.keep_level(kernel, finer.floor_level(stride, keys, inverse))
            found[number] = level
        return found


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

    def take(self, given: Cloud) -> None:  # type: ignore[override]
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

    def sites(  # type: ignore[override]
        self, given: Cloud, numbers: Sequence[int], wanted: set[int], copies: Copies
    ) -> Levels:
        fixed = self.tensor.geometry
        try:
            rows = self._rows(numbers)
        except ValueError:
            check_finite(given[0])  # such a point falls nowhere: name it rather than its cell
            raise
        assert isinstance(fixed, VoxelGrid)
        assert fixed.inverse is not None
        assert fixed.order is not None
        box = box_of(numbers)
        with outside_inference_mode():
            keys, inverse, order = (
                copies.of(*one)
                for one in (
                    (fixed.keys, rows[0]),
                    (fixed.inverse, len(given[0])),
                    (fixed.order, len(given[0])),
                )
            )
        copies.fill()
        found: dict[str, Any] = {
            "keys": keys,
            "bound": bound_of(box),
            "box": box,
            "inverse": inverse,
        }
        root = replace(self._like, **found, check=False).keep_order(order)
        return self._sites(root, rows, wanted, copies)


def room_for(
    planner: Planner, grid: VoxelGrid, points: int, edges: Edges, keyed: bool, old: Room | None
) -> Room:
    """Sizes for a planned grid and others like it, of so many points or keys at most."""
    why = planner.on_voxels.waits(grid.device)
    if why is not None:
        raise NoGraph(why)
    sizes = planner.on_voxels.fixed.room_of(grid, keyed)
    rows = [edges.above(int(HEADROOM * n)) for n in sizes.rows]
    if keyed:
        rows[0] = points
    words, whole, passes, cut = sizes.words, sizes.whole, sizes.passes, sizes.cut
    if words:  # of extents along three axes
        words = fitting_words(words, sizes.rows[0], HEADROOM**3)
    if old is not None:
        rows = list(map(max, rows, old.rows))
        words = max(words, old.words) if words else 0
        whole &= old.whole
        passes = max(passes[0], old.passes[0]), max(passes[1], old.passes[1])
        cut = old.cut
    return Room(points, tuple(rows), passes, words, whole, cut)


class Tensors:
    """Sparse tensors on voxels or native points."""

    def __init__(self, edges: Edges) -> None:
        self.edges = edges

    def item(self, given: SparseTensor, planner: Planner) -> tuple[Hashable, Any] | None:
        at = given.geometry
        if not at.rows or at.count is not None:
            return None
        kind = given.channels, given.dtype, at.batch_size
        if _plans_inside(given, planner):
            return ("voxel", self.edges.above(at.rows), *kind), given
        planner(at, False)
        planned = Planned.of(planner.recipe_on(at), given, backward=False)
        room = planned.sizes.room(self.edges)
        return ("planned", room.rows[0], room.form), planned

    def part(self, given: SparseTensor) -> SparseTensor:
        return part_of(given)

    def tensor(self, given: SparseTensor, planner: Planner) -> SparseTensor:
        planner(given.geometry, False)
        return given

    def memory(
        self, item: Any, x: SparseTensor, planners: tuple[Planner, Planner], old: Memory | None
    ) -> Memory:
        planned, own = planners
        grid = x.geometry
        if _plans_inside(x, planned):
            assert isinstance(grid, VoxelGrid)
            before = old.room if isinstance(old, VoxelMemory) else None
            most = self.edges.above(grid.rows)
            room = room_for(planned, grid, most, self.edges, True, before)
            return VoxelMemory(own.on_voxels, x, room)
        sizes = item.sizes.room(self.edges)
        if isinstance(old, FixedInput):
            sizes = sizes.joined(old.room)
        like = replace(item, x=x)  # whose features may be of another dtype
        return FixedInput(own.recipe_on(grid), like, sizes, backward=False)


class Clouds:
    """Points, features, batch index and number of clouds, which become voxels first."""

    def __init__(self, edges: Edges, voxel_size: Sequence[float], reduce: str) -> None:
        self.edges, self.voxel_size, self.reduce = edges, voxel_size, reduce

    def item(self, given: Cloud, planner: Planner) -> tuple[Hashable, Any] | None:
        points, features, batch, clouds = given
        kinds = features.shape[1], points.dtype, features.dtype
        return (self.edges.above(len(points)), clouds, batch is not None, *kinds), given

    def part(self, given: Cloud) -> Cloud:
        points, features, batch, clouds = given
        few = -(-len(points) // FEWER)
        return points[:few], features[:few], None if batch is None else batch[:few], clouds

    def tensor(self, given: Cloud, planner: Planner) -> SparseTensor:
        device = planner.device
        points, features, batch, clouds = given
        on = (None if one is None else one.to(device) for one in (points, features, batch))
        sizes = {"voxel_size": self.voxel_size, "batch_size": clouds}
        return voxelize(*on, reduce=self.reduce, planner=planner, **sizes)  # type: ignore[arg-type]

    def memory(
        self, item: Cloud, x: SparseTensor, planners: tuple[Planner, Planner], old: Memory | None
    ) -> Memory:
        planned, own = planners
        assert isinstance(x.geometry, VoxelGrid)
        before = old.room if isinstance(old, CloudMemory) else None
        most = self.edges.above(len(item[0]))
        room = room_for(planned, x.geometry, most, self.edges, False, before)
        return CloudMemory(own.on_voxels, x, room, item, self.voxel_size, self.reduce)


def part_of(x: SparseTensor) -> SparseTensor:
    """The first rows of an input, so few that most rows of its memory are spare."""
    rows = torch.arange(-(-x.geometry.rows // FEWER), device=x.device)
    return SparseTensor(x.features[rows], x.geometry.at_rows(rows))


def _plans_inside(x: SparseTensor, planner: Planner) -> bool:
    """True if levels and maps of an input are made in its graph."""
    at = x.geometry
    if not isinstance(at, VoxelGrid):
        return False
    plain = at.tensor_stride == (1, 1, 1) and at.spatial_shape is None
    floored = plain and at.downsampling == "floor"
    return floored and planner.on_voxels.waits(at.device) is None

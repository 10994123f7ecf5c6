"""What a network is called with: tensors, or clouds of points."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch

from pcnn.geometry import VoxelGrid
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.memory import Cloud, CloudMemory, Memory, VoxelMemory, room_for
from pcnn.graphs.sizes import Edges, Planned
from pcnn.ops.plan import Planner
from pcnn.ops.voxelize import voxelize
from pcnn.tensor import SparseTensor

#: A part of an input has so many times fewer rows.
FEWER = 4


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
    if not isinstance(at, VoxelGrid) or at.key_format is not DEFAULT_FORMAT:
        return False
    plain = at.tensor_stride == (1, 1, 1) and at.spatial_shape is None
    return plain and planner.on_voxels.waits(at.device, at.downsampling) is None

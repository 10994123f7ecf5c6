"""The kernel map of a layer, whichever geometry it runs on."""

from __future__ import annotations

from pcnn.geometry import Geometry, Kernel, KernelMap, PointSet, VoxelGrid
from pcnn.geometry.base import Builder
from pcnn.maps.cell_parents import CellParents
from pcnn.ops.engine import Engine, unserved

_TILING = CellParents()


def map_between(source: Geometry, target: Geometry, kernel: Kernel, engine: Engine) -> KernelMap:
    """Kernel map from input to output sites, built once and kept with the input.

    Args:
        source: input sites.
        target: output sites, of the same kind.
        kernel: the relation.
        engine: whose builder finds the triplets. On native points a kernel that tiles space needs
            none (`pcnn.maps.cell_parents`), any other one `pcnn.maps.radius.RadiusSearch`.

    Raises:
        ValueError: as `VoxelGrid.map_to` and `PointSet.map_to`; voxels and points mixed; or an
            engine that does not serve the geometry.
    """
    if isinstance(source, VoxelGrid) and isinstance(target, VoxelGrid):
        builder = engine.on_voxels
        if builder is None:
            raise unserved(engine, "voxel")
        return source.map_to(target, kernel, builder)
    if not (isinstance(source, PointSet) and isinstance(target, PointSet)):
        kinds = [type(geometry).__name__ for geometry in (source, target)]
        raise ValueError(
            f"no map leads from a {kinds[0]} to a {kinds[1]}; give both as voxels or as points"
        )
    finder = point_builder(kernel, engine)
    if finder is not None:
        return source.map_to(target, kernel, finder)
    found = source.cached_map(target, kernel)
    if found is None:
        raise unserved(engine, "point")
    return found


def found_map(
    source: Geometry, target: Geometry, kernel: Kernel, engine: Engine
) -> KernelMap | None:
    """The map that `map_between` has built, if it has."""
    builder = point_builder(kernel, engine) if isinstance(source, PointSet) else None
    return source.cached_map(target, kernel, builder)


def point_builder(kernel: Kernel, engine: Engine) -> Builder | None:
    """What relates native points for a layer; ``None`` where its engine cannot."""
    return _TILING if kernel.is_disjoint else engine.on_points

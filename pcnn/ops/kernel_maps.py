"""The kernel map of a layer, whichever geometry it runs on."""

from __future__ import annotations

from pcnn.geometry import Geometry, Kernel, KernelMap, PointSet, VoxelGrid
from pcnn.maps import MapBuilder
from pcnn.maps.cell_parents import cell_parents
from pcnn.maps.radius import RadiusSearch


def map_between(
    source: Geometry, target: Geometry, kernel: Kernel, builder: MapBuilder | RadiusSearch
) -> KernelMap:
    """Kernel map from input to output sites, built once and kept with the input.

    Args:
        source: input sites.
        target: output sites, of the same kind.
        kernel: the relation.
        builder: finds the triplets. On native points a kernel that tiles space needs none
            (`pcnn.maps.cell_parents`), any other one `pcnn.maps.radius.RadiusSearch`.

    Raises:
        ValueError: as `VoxelGrid.map_to` and `PointSet.map_to`; voxels and points mixed; or a
            kernel on native points whose neighbours the builder cannot search.
    """
    if isinstance(source, VoxelGrid) and isinstance(target, VoxelGrid):
        if isinstance(builder, RadiusSearch):
            raise ValueError(
                f"the map builder {builder.name} searches native points, but the input lives on "
                "voxels; use pcnn.native_points, or an engine for voxels"
            )
        return source.map_to(target, kernel, builder.build)
    if not (isinstance(source, PointSet) and isinstance(target, PointSet)):
        kinds = [type(geometry).__name__ for geometry in (source, target)]
        raise ValueError(
            f"no map leads from a {kinds[0]} to a {kinds[1]}; give both as voxels or as points"
        )
    if kernel.is_disjoint:
        return source.map_to(target, kernel, cell_parents)
    if isinstance(builder, RadiusSearch):
        return source.map_to(target, kernel, builder.build)
    found = source.cached_map(target, kernel)
    if found is not None:
        return found
    raise ValueError(
        f"the map builder {builder.name} searches voxels, and a kernel of size {kernel.size} and "
        f"stride {kernel.stride} on native points needs a search by radius; use pcnn.voxelize, or "
        "an engine whose map builder is RadiusSearch"
    )

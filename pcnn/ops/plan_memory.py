"""Memory that the kernel maps of a network take on a geometry, known before they are built."""

from __future__ import annotations

from pcnn.geometry import Geometry, PointSet
from pcnn.geometry.kernel_slots import Kernel
from pcnn.geometry.layouts import layout_kind
from pcnn.maps.cell_parents import CellParents
from pcnn.maps.point_memory import map_bytes
from pcnn.maps.radius import RadiusSearch
from pcnn.ops.recipe import PlannedMap, Recipe


def plan_bytes(
    recipe: Recipe, geometry: Geometry, backward: bool, layouts: tuple[str, ...] | None = None
) -> int:
    """Bound on the bytes of all kernel maps of a recipe with their layouts.

    On voxels every slot of every row counts as filled, and a level that is not there yet as large
    as its parent: scans take a fifth of it. On native points the pairs that a search compares count
    as triplets, levels are derived, and the host waits for their device.

    Args:
        recipe: of the network on such a geometry.
        geometry: the finest sites.
        backward: whether what backward reads counts.
        layouts: as in `pcnn.ops.plan.Planner`.
    """
    if isinstance(geometry, PointSet):
        return _on_points(recipe, geometry)
    rows = [geometry.rows]
    for parent, direction, kernel in recipe.levels:
        rows.append(rows[parent] * (1 if direction == "down" else kernel.volume))
    total = 0
    for planned in recipe.maps:
        sides = rows[planned.source], rows[planned.target]
        total += _voxel_bytes(planned, sides, planned.layouts(backward, layouts))
    return total


def _voxel_bytes(
    planned: PlannedMap, rows: tuple[int, int], wanted: tuple[tuple[str, bool], ...]
) -> int:
    volume = planned.kernel.volume
    triplets = volume * rows[1]
    # what the builder writes: a table with its masks, or pairs
    found = max(4 * (volume + 2) * rows[1], 8 * triplets)
    for name, flipped in wanted:
        side = rows[0] if flipped else rows[1]
        listed = layout_kind(name).triplet_bytes * triplets
        found += max(listed, 4 * (volume + 2) * side) + 8 * side
    return found


def _on_points(recipe: Recipe, root: PointSet) -> int:
    sets = [root]
    for parent, _, kernel in recipe.levels:
        sets.append(sets[parent].strided(Kernel.of(kernel.stride, kernel.stride, padding=0)))
    total = 0
    for planned in recipe.maps:
        source, target = sets[planned.source], sets[planned.target]
        rows, kernel, symmetric = (source.rows, target.rows), planned.kernel, False
        builder, triplets = planned.builder, source.rows
        if isinstance(builder, RadiusSearch):
            search = builder.search(source, target, kernel)
            triplets, symmetric = search.compared, search.symmetric
        elif not isinstance(builder, CellParents):
            triplets = source.rows * kernel.volume
        total += map_bytes(triplets, rows, kernel.volume, root.device.type, symmetric)
    return total


def held_bytes(geometry: Geometry) -> int:
    """Bytes of all layouts of the kernel maps that a geometry and its levels keep."""
    found: dict[int, int] = {}
    todo: list[Geometry] = [geometry]
    for level in todo:
        todo += level.levels().values()
        for built in level.cached_maps():
            layouts = built.edges.layouts.values()
            found.update({t.data_ptr(): t.nbytes for layout in layouts for t in layout})
    return sum(found.values())

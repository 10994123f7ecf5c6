"""All maps of a network, built one after the other, on streams, and as `pcnn.plan` builds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from pcnn.bench import oracle
from pcnn.bench.conformance import check_map_builder
from pcnn.bench.mapping.builders import IN_NETWORKS
from pcnn.bench.mapping.products import AUTO, Planned, Unplanned
from pcnn.bench.place import bare
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, run
from pcnn.bench.scenes import Scene
from pcnn.bench.setting import MappingSetting
from pcnn.bench.verify import Proof, check_triplets
from pcnn.geometry import VoxelGrid
from pcnn.kernels import pinned
from pcnn.maps import MapBuilder
from pcnn.maps.levels import box_bits, extent_of, unique_sites
from pcnn.models import MinkUNet42, SparseResNet21, SparseResNetLarge
from pcnn.ops.plan import Planner
from pcnn.ops.recipe import PlannedMap, Recipe
from pcnn.ops.sites import output_sites

#: Networks of Spira's evaluation. Maps do not depend on the width: the thinnest is quickest made.
MODELS: dict[str, Callable[..., nn.Module]] = {
    "sparse_resnet": partial(SparseResNet21, width=0.25),
    "sparse_resnet_large": partial(SparseResNetLarge, width=0.25),
    "minkunet": partial(MinkUNet42, width=0.25),
}
#: Streams among which Spira's way deals the maps.
STREAMS = 4

#: The product of every map, forward, and that of maps made from cells.
LAYOUTS = ("table",)
READY = AUTO.needs

#: Leaves all levels and maps of a network on sites whose caches are empty.
Schedule = Callable[[Planner, VoxelGrid], VoxelGrid]
#: A schedule's call of every repeat.
Plans = Callable[[int], Callable[[], VoxelGrid]]


def plan_rows(setting: MappingSetting, figure: str) -> Iterator[Row]:
    """Check, then time, every schedule of every network, from the sorted keys of level 0 alone.

    ``one launch`` is the plan of `engine=spira`: all levels by one sort and all maps by one launch,
    in the place of streams. The schedule ``from cells`` does more: from shuffled cells, packed and
    sorted on the way, to the product ``ready`` of every map.
    """
    for name, make in MODELS.items():
        planner = Planner(make(), LAYOUTS)
        for scene in setting.scenes:
            yield from run(_cases(setting, figure, name, planner, scene), setting)


def _cases(
    setting: MappingSetting, figure: str, name: str, planner: Planner, scene: Scene
) -> Iterator[Case]:
    grid = scene.grid.to(setting.where)
    truth = _true_maps(grid, planner.recipe)
    triplets = sum(len(j) for pairs in truth for j, _ in pairs)
    ready, cells = Planner(MODELS[name](), READY), _shuffled(grid)
    ways: list[tuple[str, str, Plans, str | None]] = [
        (way, engine, _fresh(run_, planner, grid), None)
        for way, engine, run_ in _schedules(setting, planner)
    ]
    if setting.where.type == "cuda":
        spira = Planner(MODELS[name](engine="spira").to(setting.where), LAYOUTS)
        ways.append(("one launch", spira.engine.name, _fresh(as_planned, spira, grid), None))
    ways.append(("from cells", ready.engine.name, _from_cells(ready, cells), "ready"))
    for schedule, engine, calls, product in ways:
        row = Row(
            "map",
            scene.name,
            engine,
            n=grid.rows,
            triplets=triplets,
            product=product,
            model=name,
            figure=figure,
            params={"schedule": schedule, "maps": len(truth)},
        )

        def check(row: Row = row, calls: Plans = calls) -> Checked:
            for builder in setting.builders:
                if builder.name == row.engine:
                    check_map_builder(builder, setting.where)
            return check_plan(row, calls(0)(), planner.recipe, truth), lambda: calls

        yield Case(row, check)


def _schedules(setting: MappingSetting, planner: Planner) -> Iterator[tuple[str, str, Schedule]]:
    """Name of every schedule, its engine, and how it runs."""
    yield "pcnn.plan", planner.engine.name, as_planned
    builders = [b for b in setting.builders if not isinstance(b, Planned)]  # the schedule above
    for builder in [b for b in builders if b.name in IN_NETWORKS] or builders:
        yield "sequential", builder.name, partial(_sequential, builder)
        if setting.where.type == "cuda":
            yield "streams", builder.name, partial(_streamed, builder)


def _fresh(run: Schedule, planner: Planner, grid: VoxelGrid) -> Plans:
    """Calls of a schedule, each on sites without caches."""

    def prepared(_: int) -> Callable[[], VoxelGrid]:
        sites = bare(grid)
        return lambda: run(planner, sites)

    return prepared


def _shuffled(grid: VoxelGrid) -> Tensor:
    order = torch.randperm(grid.rows, generator=torch.Generator().manual_seed(0))
    return grid.coords[order.to(grid.device)].contiguous()


def _from_cells(planner: Planner, cells: Tensor) -> Plans:
    return lambda _: lambda: planner.voxelize(cells)


def _levels_of(grid: VoxelGrid, recipe: Recipe) -> list[VoxelGrid]:
    levels = [grid]
    for parent, direction, kernel in recipe.levels:
        finer = levels[parent]
        levels.append(
            output_sites(finer, kernel) if direction == "down" else finer.generated(kernel)
        )
    return levels


def as_planned(planner: Planner, grid: VoxelGrid) -> VoxelGrid:
    """The work of `pcnn.plan` before a forward pass."""
    return planner(grid, backward=False)


def _sequential(builder: MapBuilder, planner: Planner, grid: VoxelGrid) -> VoxelGrid:
    levels = _levels_of(grid, planner.recipe)
    for planned in planner.recipe.maps:
        _finish(builder, planned, levels)
    return grid


def _streamed(builder: MapBuilder, planner: Planner, grid: VoxelGrid) -> VoxelGrid:
    """Levels, then maps, dealt among several streams of torch (Spira 5.5)."""
    current = torch.cuda.current_stream(grid.device)
    streams = [torch.cuda.Stream(grid.device) for _ in range(STREAMS)]
    levels = _streamed_levels(streams, planner.recipe, grid)
    ready = current.record_event()
    for place, planned in enumerate(planner.recipe.maps):
        stream = streams[place % STREAMS]
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            _finish(builder, planned, levels)
    # the levels live until here, so that no stream reads memory that another has taken over
    for stream in streams:
        current.wait_stream(stream)
    return grid


def _streamed_levels(
    streams: Sequence[torch.cuda.Stream], recipe: Recipe, grid: VoxelGrid
) -> list[VoxelGrid]:
    """Every level straight from the finest sites, on streams; one wait for all their sizes."""
    # levels that are not the floor of the finest sites are made one after the other
    if any(direction != "down" for _, direction, _ in recipe.levels):
        return _levels_of(grid, recipe)
    strides = [grid.tensor_stride]
    for parent, _, kernel in recipe.levels:
        (x, y, z), (a, b, c) = strides[parent], kernel.stride
        strides.append((x * a, y * b, z * c))
    current = torch.cuda.current_stream(grid.device)
    extent, key_format = extent_of(grid.keys, grid.key_format), grid.key_format
    ready, made = current.record_event(), []
    for place, stride in enumerate(strides[1:]):
        stream = streams[place % len(streams)]
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            bits = box_bits(grid.extent, grid.batch_size, stride)
            made.append(unique_sites(grid.keys, extent, [stride], key_format, bits=bits))
    for stream in streams:
        current.wait_stream(stream)
    counts = pinned.read_copy(torch.cat([level.counts for level in made])) if made else []
    levels = [grid]
    for (parent, _, kernel), stride, found, rows in zip(
        recipe.levels, strides[1:], made, counts, strict=True
    ):
        finer = levels[parent]
        bound, box = finer.bound + max(stride) - 1, finer.coarse_box(stride)
        given = finer.batch_size, bound, stride, finer.downsampling, None, key_format, box
        levels.append(finer.keep_level(kernel, VoxelGrid(found.keys[0][:rows], *given)))
    return levels


def _finish(builder: MapBuilder, planned: PlannedMap, levels: Sequence[VoxelGrid]) -> None:
    """Build a map and the layouts that a forward pass reads of it, as the planner does."""
    source, target = levels[planned.source], levels[planned.target]
    built = source.map_to(target, planned.kernel, builder)
    for name, flipped in planned.layouts(False, LAYOUTS):
        (built.transpose() if flipped else built).layout(name)


def _true_maps(grid: VoxelGrid, recipe: Recipe) -> list[list[oracle.Pair]]:
    levels = _levels_of(bare(grid), recipe)
    return [
        oracle.triplets(levels[planned.source], levels[planned.target], planned.kernel)
        for planned in recipe.maps
    ]


def check_plan(
    row: Row, grid: VoxelGrid, recipe: Recipe, truth: Sequence[list[oracle.Pair]]
) -> Proof:
    """Compare all maps that a schedule left on a grid with the oracle's triplets.

    Raises:
        CheckFailed: a map is missing, or does not hold exactly these.
    """
    levels = _levels_of(grid, recipe)
    for planned, pairs in zip(recipe.maps, truth, strict=True):
        source, target = levels[planned.source], levels[planned.target]
        built = source.map_to(target, planned.kernel, Unplanned())
        check_triplets(row, built, pairs)
    return Proof(row)

"""All maps of a network, built one after the other, on streams, and as `pcnn.plan` builds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.bench import oracle
from pcnn.bench.conformance import check_map_builder
from pcnn.bench.harness import Calls, measure
from pcnn.bench.mapping.builders import IN_NETWORKS
from pcnn.bench.mapping.measured import Setting
from pcnn.bench.mapping.planned import AUTO, Planned
from pcnn.bench.mapping.products import bare
from pcnn.bench.rows import Row
from pcnn.bench.verify import CheckFailed, Configuration, check_triplets
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import MapBuilder
from pcnn.models import MinkUNet42, SparseResNet21, SparseResNetLarge
from pcnn.ops.plan import Planner
from pcnn.ops.recipe import PlannedMap, Recipe
from pcnn.ops.sites import strided

#: Networks of Spira's evaluation. Maps do not depend on the width: the thinnest is quickest made.
MODELS: dict[str, Callable[[], nn.Module]] = {
    "sparse_resnet": partial(SparseResNet21, width=0.25),
    "sparse_resnet_large": partial(SparseResNetLarge, width=0.25),
    "minkunet": partial(MinkUNet42, width=0.25),
}
#: Streams among which Spira's way deals the maps.
STREAMS = 4

#: What every map delivers, forward, and what it delivers on the way from cells.
LAYOUTS = ("table",)
READY = AUTO.needs

#: Leaves all levels and maps of a network on sites whose caches are empty.
Schedule = Callable[[Planner, VoxelGrid], VoxelGrid]
#: A schedule's call of every repeat.
Plans = Callable[[int], Callable[[], VoxelGrid]]


def plan_rows(setting: Setting, figure: str) -> Iterator[Row]:
    """Check, then time, every schedule of every network, from the sorted keys of level 0 alone.

    The schedule ``from cells`` does more: from shuffled cells, packed and sorted on the way, to the
    product ``ready`` of every map.

    What a builder cannot serve, or does wrongly, is a row without times that says so.
    """
    for name, make in MODELS.items():
        planner = Planner(make(), LAYOUTS)
        for scene in setting.scenes:
            grid = scene.grid.to(setting.device)
            truth = true_maps(grid, planner.recipe)
            triplets = sum(len(j) for pairs in truth for j, _ in pairs)
            ready = Planner(make(), READY)
            cells = shuffled(grid)
            ways: list[tuple[str, str, Plans, str | None]] = [
                (way, engine, fresh(run, planner, grid), None)
                for way, engine, run in schedules(setting, planner)
            ]
            ways.append(("from cells", ready.engine.name, from_cells(ready, cells), "ready"))
            for schedule, engine, calls, product in ways:
                params: dict[str, int | float | str] = {"schedule": schedule, "maps": len(truth)}
                columns: dict[str, Any] = {}
                configuration = Configuration(
                    engine,
                    scene.name,
                    str(setting.device),
                    Kernel.of(1),
                    params=(("model", name), ("schedule", schedule)),
                )
                try:
                    for builder in setting.builders:
                        if builder.name == engine:
                            check_map_builder(builder, setting.device)
                    check_plan(configuration, calls(0)(), planner.recipe, truth)
                    columns = _times(setting, calls)
                except (ValueError, RuntimeError) as error:
                    params["left_out"] = f"{type(error).__name__}: {error}"
                yield Row(
                    "map",
                    scene.name,
                    engine,
                    n=grid.rows,
                    triplets=triplets,
                    product=product,
                    model=name,
                    figure=figure,
                    params=params,
                    checked=bool(columns),
                    **columns,
                )


def _times(setting: Setting, calls: Calls) -> dict[str, Any]:
    measured = measure(
        calls,
        setting.device,
        repeats=setting.repeats,
        budget_s=setting.budget_s,
        cold=setting.cold,
        count=setting.count,
    )
    return measured.columns()


def schedules(setting: Setting, planner: Planner) -> Iterator[tuple[str, str, Schedule]]:
    """Name of every schedule, its engine, and how it runs."""
    yield "pcnn.plan", planner.engine.name, as_planned
    builders = [b for b in setting.builders if not isinstance(b, Planned)]  # the schedule above
    for builder in [b for b in builders if b.name in IN_NETWORKS] or builders:
        yield "sequential", builder.name, partial(sequential, builder)
        if setting.device.type == "cuda":
            yield "streams", builder.name, partial(streamed, builder)


def fresh(run: Schedule, planner: Planner, grid: VoxelGrid) -> Plans:
    """Calls of a schedule, each on sites without caches."""

    def prepared(_: int) -> Callable[[], VoxelGrid]:
        sites = bare(grid)
        return lambda: run(planner, sites)

    return prepared


def shuffled(grid: VoxelGrid) -> Tensor:
    """Cells of a grid in no order, ``[N, 4]`` int32."""
    order = torch.randperm(grid.rows, generator=torch.Generator().manual_seed(0))
    return grid.coords[order.to(grid.device)].contiguous()


def from_cells(planner: Planner, cells: Tensor) -> Plans:
    """Calls that quantise and plan cells in one go."""
    return lambda _: lambda: planner.voxelize(cells)


def levels_of(grid: VoxelGrid, recipe: Recipe) -> list[VoxelGrid]:
    """Level 0 and those derived from it."""
    levels = [grid]
    for parent, direction, kernel in recipe.levels:
        finer = levels[parent]
        levels.append(strided(finer, kernel) if direction == "down" else finer.generated(kernel))
    return levels


def as_planned(planner: Planner, grid: VoxelGrid) -> VoxelGrid:
    """What `pcnn.plan` does before a forward pass."""
    return planner(grid, backward=False)


def sequential(builder: MapBuilder, planner: Planner, grid: VoxelGrid) -> VoxelGrid:
    """All maps on one stream, one after the other."""
    levels = levels_of(grid, planner.recipe)
    for planned in planner.recipe.maps:
        finish(builder, planned, levels)
    return grid


def streamed(builder: MapBuilder, planner: Planner, grid: VoxelGrid) -> VoxelGrid:
    """All maps dealt among several streams, once the levels are there (Spira 5.5)."""
    levels = levels_of(grid, planner.recipe)
    current = torch.cuda.current_stream(grid.device)
    ready = current.record_event()
    streams = [torch.cuda.Stream(grid.device) for _ in range(STREAMS)]
    for place, planned in enumerate(planner.recipe.maps):
        stream = streams[place % STREAMS]
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            finish(builder, planned, levels)
    # the levels live until here, so that no stream reads memory that another has taken over
    for stream in streams:
        current.wait_stream(stream)
    return grid


def finish(builder: MapBuilder, planned: PlannedMap, levels: Sequence[VoxelGrid]) -> None:
    """Build a map and the layouts that a forward pass reads of it, as the planner does."""
    source, target = levels[planned.source], levels[planned.target]
    built = source.map_to(target, planned.kernel, builder)
    for name, flipped in planned.layouts(False, LAYOUTS):
        (built.transpose() if flipped else built).layout(name)


def true_maps(grid: VoxelGrid, recipe: Recipe) -> list[list[oracle.Pair]]:
    """Triplets of every map of a network."""
    levels = levels_of(bare(grid), recipe)
    return [
        oracle.triplets(levels[planned.source], levels[planned.target], planned.kernel)
        for planned in recipe.maps
    ]


def check_plan(
    configuration: Configuration,
    grid: VoxelGrid,
    recipe: Recipe,
    truth: Sequence[list[oracle.Pair]],
) -> None:
    """Compare all maps that a schedule left on a grid with the oracle's triplets.

    Raises:
        CheckFailed: a map is missing, or does not hold exactly these.
    """
    levels = levels_of(grid, recipe)
    for planned, pairs in zip(recipe.maps, truth, strict=True):
        source, target = levels[planned.source], levels[planned.target]
        built = source.map_to(target, planned.kernel, _Unplanned())
        check_triplets(configuration, built, pairs).admit(configuration)


class _Unplanned:
    """A builder that is not to be asked."""

    def build(self, source: Any, target: Any, kernel: Kernel) -> KernelMap:
        """Refuse."""
        raise CheckFailed(f"a plan left out the map of {kernel}")

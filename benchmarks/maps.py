"""Times to find the triplets, product by product, and figures about maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import check
from benchmarks.check import CheckFailed
from benchmarks.convolution import Place, bare
from benchmarks.layers import STAGES, place_of, stages_of_map
from benchmarks.rows import Row
from benchmarks.run import Case, Options, Prepare, by_part, run, same
from benchmarks.workloads import Scene, scenes
from pcnn.dataflows import ConvSpec, Reference
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.base import Builder
from pcnn.geometry.packing import pack
from pcnn.maps import DoubleTraversed, HashTable, SortedSearch, ZDelta
from pcnn.maps.windowed import Windowed
from pcnn.models import MinkUNet42, SparseResNet21, SparseResNetLarge
from pcnn.ops.conformance import check_builder
from pcnn.ops.engine import ENGINES
from pcnn.ops.plan import Planner
from pcnn.ops.recipe import Recipe
from pcnn.ops.sites import output_sites, reached_sites
from pcnn.runtime.timing import Call

#: What a builder must deliver, so that no work is hidden: ``table``, the neighbour table alone;
#: ``pairs``, the triplets by slot; ``ready``, all that a forward pass of ``auto`` on a GPU reads;
#: ``train``, that and what its backward reads.
PRODUCTS = ("table", "pairs", "ready", "train")
SUBMANIFOLD = ("3:1",)
#: The layouts that ``auto`` reads on a GPU, on any device that makes them.
AUTO = ENGINES["auto"].dataflows(torch.device("cuda"))[0]


class _Unplanned:
    """A builder that is not to be asked."""

    def build(self, source: Any, target: Any, kernel: Kernel) -> KernelMap:
        raise CheckFailed(f"the plan left out the map of {kernel}")


def builders(options: Options) -> list[Builder]:
    every: list[Any] = [SortedSearch()]
    if options.device.type == "cuda":
        every += [
            HashTable(),
            DoubleTraversed(),
            ZDelta("binary_search", deltas=False),
            ZDelta(),
            Windowed(),
        ]
    known = {one.name: one for one in every}
    named = [known[name] for name in options.engines if name in known]
    return named or every


def build(grid: VoxelGrid, builder: Any, kernel: Kernel, product: str) -> KernelMap:
    built: KernelMap = builder.build(grid, output_sites(grid, kernel), kernel)
    # told to every map that a geometry keeps; tiles are cut along it
    built.edges.kernel = kernel
    deliver(built, product)
    return built


def deliver(built: KernelMap, product: str) -> None:
    whole = product in ("ready", "train")
    for name in AUTO.needs if whole else (product,):
        built.layout(name)
    if product == "train":
        for name in AUTO.needs_weight_grad:
            built.layout(name)
        for name in () if built.symmetric else AUTO.needs:
            built.transpose().layout(name)


def check_product(built: KernelMap, truth: list[check.Pair], product: str) -> None:
    check.check_triplets(built, truth)
    if product == "table":
        device = truth[0][0].device
        table = torch.full((built.n_out, built.volume), -1, dtype=torch.int32, device=device)
        for slot, (j, i) in enumerate(truth):
            table[i, slot] = j.to(torch.int32)
        if not torch.equal(built.layout("table")[0].to(torch.int32), table):
            raise CheckFailed("the neighbour table does not agree with the triplets")


def map_case(
    options: Options,
    place: Place,
    builder: Any,
    product: str,
    figure: str,
    stages: Sequence[str] = (),
    **keys: Any,
) -> Case:
    row = place.row("map", builder.name, figure, product=product, **keys)

    def prepared() -> Call:
        sites: Any = bare(place.grid)
        return lambda: build(sites, builder, place.kernel, product)

    def checked() -> Any:
        if options.gate:
            check_builder(builder, options.device)
        built: Any = prepared()()
        check_product(built, place.pairs, product)
        return prepared

    return Case(row, checked, by_part(stages_of_map, "stage", stages) if stages else None)


def places(options: Options, kernels: Sequence[str] = ()) -> Iterator[Place]:
    for scene in scenes(options.workloads):
        for word in kernels or options.kernels:
            size, stride = map(int, word.split(":"))
            yield place_of(scene, Kernel.of(size, stride), options)


def scaling(options: Options, figure: str) -> Iterator[Row]:
    """Spira Fig. 12: every builder, product and kernel over scenes of growing size, with stages."""
    products = options.products or PRODUCTS
    staged = "ready" if "ready" in products else products[-1]
    for place in places(options):
        cases = []
        for builder in builders(options):
            cases += [map_case(options, place, builder, one, figure) for one in products]
            cases.append(map_case(options, place, builder, staged, figure, STAGES))
        yield from run(cases, options)


def query(options: Options, figure: str) -> Iterator[Row]:
    """Minuet Fig. 16: time of the search alone."""
    own = builders(options)
    for place in places(options, SUBMANIFOLD):
        yield from run(
            (map_case(options, place, b, "table", figure, ["search"]) for b in own), options
        )


def source_side(options: Options, figure: str) -> Iterator[Row]:
    """Minuet Fig. 17: sorting the coordinates, against filling a hash table with them."""
    for place in places(options, SUBMANIFOLD):
        tables = [one for one in builders(options) if isinstance(one, HashTable)]
        cases = [map_case(options, place, one, "table", figure, ["prepare"]) for one in tables]
        yield from run([_sort_case(place, figure), *cases], options)


def _sort_case(place: Place, figure: str) -> Case:
    grid: Any = place.grid
    keys = {"stage": "prepare", "n": grid.rows}
    row = {"figure": figure, "what": "map", "workload": place.workload, "engine": "pack_and_sort"}

    def checked() -> Prepare:
        cells = _shuffled(grid)
        if not torch.equal(pack(cells).sort()[0], grid.keys):
            raise CheckFailed("sorted keys are not those of the grid")
        return same(lambda: pack(cells).sort())

    return Case({**row, **keys}, checked)


def _shuffled(grid: VoxelGrid) -> Tensor:
    order = torch.randperm(grid.rows, generator=torch.Generator().manual_seed(0))
    return grid.coords[order.to(grid.device)].contiguous()


#: Minuet 5.1: sizes B and C of source and query blocks.
BLOCKS = [(b, c) for b in (64, 128, 256, 512) for c in (128, 256, 512)]


def block_sizes(options: Options, figure: str) -> Iterator[Row]:
    """Minuet Fig. 18: time over the sizes of source and query blocks, on a GPU."""
    for place in places(options, SUBMANIFOLD):
        if options.device.type == "cuda":
            made = {(b, c): DoubleTraversed(source_block=b, query_block=c) for b, c in BLOCKS}
        else:
            made = {(0, 0): SortedSearch()}
        cases = (
            map_case(options, place, builder, "table", figure, B=b, C=c)
            for (b, c), builder in made.items()
        )
        yield from run(cases, options)


#: TorchSparse 4.4: steps of the hash-table builder, each with those before it. Output sites come
#: from one kernel in all of them.
HASH_STEPS = {
    "baseline": HashTable(search="hash", simplified=False, symmetry=False),
    "+ grid": HashTable(search="grid", simplified=False, symmetry=False),
    "+ simplified control": HashTable(search="grid", symmetry=False),
    "+ symmetry": HashTable(search="grid"),
}


def hash_steps(options: Options, figure: str) -> Iterator[Row]:
    """TorchSparse Fig. 13: output construction and map search with one more step at a time."""
    on_gpu = options.device.type == "cuda"
    # submanifold, where symmetry counts, and down-sampling, where output sites are constructed
    for plain in places(options, ("3:1", "3:2")):
        grid: Any = plain.grid
        place = Place(plain.workload, replace(bare(grid), downsampling="reached"), plain.kernel)
        cases: list[Case] = []
        gridless = False
        for step, listed in HASH_STEPS.items() if on_gpu else [("baseline", SortedSearch())]:
            builder: Any = replace(listed, search="hash") if gridless else listed  # type: ignore
            fits = not on_gpu or gridless or _fits(builder, place)
            gridless = gridless or not fits  # this step says why, the later ones go on without
            row = place.row("map", builder.name, figure, step=step)
            row["search"] = getattr(builder, "search", "sorted")
            if on_gpu and place.kernel.is_strided and fits:
                sites = partial(_sites_call, builder, place)
                cases.append(Case({**row, "part": "output sites"}, sites))
            search = partial(_search_call, builder, place)
            cases.append(Case({**row, "product": "table", "part": "map search"}, search))
        yield from run(cases, options)


def _fits(builder: Any, place: Place) -> bool:
    try:
        builder.build(place.grid, place.target, place.kernel)
    except ValueError:
        return False
    return True


def _sites_call(builder: HashTable, place: Place) -> Prepare:
    def prepared() -> Call:
        sites: Any = bare(place.grid)
        return lambda: reached_sites(sites, place.kernel, simplified=builder.simplified)

    found: Any = prepared()()
    target: Any = place.target
    if not torch.equal(found.keys, target.keys):
        raise CheckFailed("other output sites")
    return prepared


def _search_call(builder: Any, place: Place) -> Prepare:
    def search() -> KernelMap:
        built: KernelMap = builder.build(place.grid, place.target, place.kernel)
        deliver(built, "table")
        return built

    check_product(search(), place.pairs, "table")
    return same(search)


#: Networks of Spira's evaluation. Maps do not depend on the width: the thinnest is quickest made.
MODELS: dict[str, Callable[..., nn.Module]] = {
    "sparse_resnet": partial(SparseResNet21, width=0.25),
    "sparse_resnet_large": partial(SparseResNetLarge, width=0.25),
    "minkunet": partial(MinkUNet42, width=0.25),
}
STREAMS = 4  # streams among which Spira's way deals the maps


@dataclass(frozen=True)
class Reads(Reference):
    """A dataflow of given layouts, which computes nothing."""

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        return x.new_zeros(n_out, w.shape[2])


def _planner(
    name: str, layouts: tuple[str, ...], device: torch.device, engine: str = "auto"
) -> Planner:
    reads = replace(ENGINES[engine], dataflow=Reads(needs=layouts, needs_weight_grad=()))
    return Planner(MODELS[name](engine=reads).to(device))


def network_plans(options: Options, figure: str) -> Iterator[Row]:
    """Spira Fig. 15: all maps of a network from the sorted keys of level 0, by every schedule."""
    for name in options.models or MODELS:
        for scene in scenes(options.workloads):
            yield from run(_plans(options, figure, name, scene), options)


def _plans(options: Options, figure: str, name: str, scene: Scene) -> Iterator[Case]:
    grid, device = scene.grid.to(options.device), options.device
    planner, ready = (_planner(name, one, device) for one in (("table",), AUTO.needs))
    recipe = planner.recipe
    levels = _levels(bare(grid), recipe)
    truth = [check.triplets(levels[m.source], levels[m.target], m.kernel) for m in recipe.maps]
    cells = _shuffled(grid)
    own: Any = ZDelta() if device.type == "cuda" else SortedSearch()
    ways: list[tuple[str, str, Callable[[VoxelGrid], VoxelGrid]]] = [
        ("planned", "auto", lambda sites: planner(sites, backward=False)),
        ("one by one", own.name, lambda sites: _one_by_one(own, recipe, sites)),
        ("from cells", "auto", lambda _: ready.voxelize(cells)),
    ]
    if device.type == "cuda":
        spira = _planner(name, ("table",), device, "spira")
        ways.append(("planned", "spira", lambda sites: spira(sites, backward=False)))
        ways.append(("streams", own.name, lambda sites: _one_by_one(own, recipe, sites, STREAMS)))
    row = {"figure": figure, "what": "map", "workload": scene.name, "n": grid.rows, "model": name}
    row["triplets"] = sum(len(j) for pairs in truth for j, _ in pairs)
    for schedule, engine, plan in ways:

        def prepared(plan: Callable[[VoxelGrid], VoxelGrid] = plan) -> Call:
            sites = bare(grid)
            return lambda: plan(sites)

        def checked(prepared: Prepare = prepared) -> Prepare:
            found: Any = prepared()()
            levels = _levels(found, recipe)
            for planned, pairs in zip(recipe.maps, truth, strict=True):
                source, target = levels[planned.source], levels[planned.target]
                check.check_triplets(source.map_to(target, planned.kernel, _Unplanned()), pairs)
            return prepared

        yield Case({**row, "engine": engine, "schedule": schedule}, checked)


def _levels(grid: VoxelGrid, recipe: Recipe) -> list[VoxelGrid]:
    levels = [grid]
    for parent, direction, kernel in recipe.levels:
        finer = levels[parent]
        down = direction == "down"
        levels.append(output_sites(finer, kernel) if down else finer.generated(kernel))
    return levels


def _one_by_one(builder: Any, recipe: Recipe, grid: VoxelGrid, streams: int = 0) -> VoxelGrid:
    """Levels, then maps one after the other, dealt among streams if there are any (Spira 5.5)."""
    levels = _levels(grid, recipe)

    def build(number: int) -> None:
        planned = recipe.maps[number]
        built = levels[planned.source].map_to(levels[planned.target], planned.kernel, builder)
        built.layout("table")

    if not streams:
        for number in range(len(recipe.maps)):
            build(number)
        return grid
    current = torch.cuda.current_stream(grid.device)
    others = [torch.cuda.Stream(grid.device) for _ in range(streams)]
    ready = current.record_event()
    for number in range(len(recipe.maps)):
        stream = others[number % streams]
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            build(number)
    # the levels live until here, so that no stream reads memory that another has taken over
    for stream in others:
        current.wait_stream(stream)
    return grid


FIGURES: dict[str, Callable[[Options, str], Iterator[Row]]] = {
    "spira_fig12": scaling,
    "torchsparse_fig13": hash_steps,
    "minuet_fig16": query,
    "minuet_fig17": source_side,
    "minuet_fig18": block_sizes,
    "spira_fig15": network_plans,
}

"""The papers' figures on mapping, each measured on the given scenes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from pcnn.bench.charts import BUSY, STAGES, View
from pcnn.bench.conformance import check_map_builder
from pcnn.bench.harness import Call, Calls, same
from pcnn.bench.mapping.builders import (
    BLOCK_SIZES,
    HASH_TABLE_STEPS,
    HASHED,
    builders_for,
    for_product,
)
from pcnn.bench.mapping.l2_hits import l2_hit_percent
from pcnn.bench.mapping.maps import map_case, places
from pcnn.bench.mapping.network_plan import plan_rows
from pcnn.bench.mapping.products import check_product, deliver
from pcnn.bench.peers import MAPS
from pcnn.bench.place import Place, bare
from pcnn.bench.rows import Row, left_out
from pcnn.bench.run import Case, Checked, run
from pcnn.bench.setting import MappingSetting
from pcnn.bench.suite import Figure
from pcnn.bench.verify import CheckFailed, Proof
from pcnn.geometry import KernelMap, KeyFormat, VoxelGrid
from pcnn.maps.double_traversed import DoubleTraversed
from pcnn.maps.hash_table import HashTable

SUBMANIFOLD_3 = ((3, 1),)


def scaling(setting: MappingSetting, figure: str) -> Iterator[Row]:
    """Spira Fig. 12: every builder, product and kernel over scenes of growing size, with stages."""
    staged = "ready" if "ready" in setting.products else setting.products[-1]
    for place in places(setting):
        cases = []
        for builder in setting.builders:
            cases += [
                map_case(setting, place, for_product(builder, product), product, figure)
                for product in setting.products
            ]
            cases.append(map_case(setting, place, builder, staged, figure, stages=tuple(STAGES)))
        yield from run(cases, setting)


def query(setting: MappingSetting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 16: time of the search alone, and its hits in the L2 cache."""
    for place in places(setting, SUBMANIFOLD_3):
        for builder in setting.builders:
            case = map_case(setting, place, builder, "table", figure, stages=("search",))
            for row in run([case], setting):
                if not setting.ncu or not row.checked:
                    yield row
                    continue
                try:
                    yield l2_hit_percent(row, place, builder)
                except RuntimeError as error:
                    yield row
                    without = replace(row, gpu_busy_ms=None, checked=False)
                    yield left_out(without, f"L2 hits: {error}")


def source_side(setting: MappingSetting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 17: sorting the coordinates, against filling a hash table with them."""
    for place in places(setting, SUBMANIFOLD_3):
        cases = [sort_case(place, figure)]
        for builder in setting.builders:
            if builder.name in HASHED:
                stages = ("prepare",)
                cases.append(map_case(setting, place, builder, "table", figure, stages=stages))
        yield from run(cases, setting)


def pack_and_sort(coords: Tensor, layout: KeyFormat) -> tuple[Tensor, Tensor]:
    """Sorted keys ``[N]`` int64 of coordinates ``[N, 4]``, and the row each comes from."""
    keys, order = layout.pack(coords).sort()
    return keys, order


def sort_case(place: Place, figure: str) -> Case:
    """Packing and sorting the shuffled coordinates of a scene."""
    grid = place.grid
    assert isinstance(grid, VoxelGrid)
    said = {"stage": "prepare"}
    row = Row("map", place.workload, "pack_and_sort", n=grid.rows, figure=figure, params=said)

    def check() -> Checked:
        random = torch.Generator().manual_seed(0)
        shuffled = grid.coords[torch.randperm(grid.rows, generator=random).to(grid.device)]
        if not torch.equal(pack_and_sort(shuffled, grid.key_format)[0], grid.keys):
            raise CheckFailed(f"on {place.workload} sorted keys are not those of the grid")
        return Proof(row), lambda: same(lambda: pack_and_sort(shuffled, grid.key_format))

    return Case(row, check)


def block_sizes(setting: MappingSetting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 18: time over the sizes of source and query blocks.

    No rows where no double-traversed search serves the device.
    """
    if not any(builder.name == DoubleTraversed.name for builder in builders_for(setting.where)):
        return
    for place in places(setting, SUBMANIFOLD_3):
        cases = [
            map_case(setting, place, builder, "table", figure, {"B": source, "C": target})
            for source, target, builder in BLOCK_SIZES
        ]
        yield from run(cases, setting)


def ablation(setting: MappingSetting, figure: str) -> Iterator[Row]:
    """TorchSparse Fig. 13: output construction and map search with one more step at a time.

    Output sites are those that some triplet reaches, as in the paper. Where the sites are too far
    apart for a grid, that step is a row without times, and the later steps go on with the hash
    table. No rows where no hash table serves the device.
    """
    if not any(builder.name in HASHED for builder in builders_for(setting.where)):
        return
    # submanifold, where symmetry counts, and down-sampling, where output sites are constructed
    for plain in places(setting, ((3, 1), (3, 2))):
        grid = plain.grid
        assert isinstance(grid, VoxelGrid)
        place = Place(plain.workload, replace(bare(grid), downsampling="reached"), plain.kernel)
        cases: list[Case] = []
        gridless = False
        for step, listed in HASH_TABLE_STEPS:
            builder = replace(listed, search="hash") if gridless else listed
            if listed.search != "grid":
                builder = listed
            elif not gridless and not _fits(builder, place):
                gridless = True  # this step says why, the later ones go on without
            if place.kernel.is_strided and _fits(builder, place):
                cases.append(sites_case(setting, place, step, builder, figure))
            cases.append(search_case(setting, place, step, builder, figure))
        yield from run(cases, setting)


def _fits(builder: HashTable, place: Place) -> bool:
    try:
        _table(builder, place)
    except ValueError:
        return False
    return True


def _table(builder: HashTable, place: Place) -> KernelMap:
    grid, target = place.grid, place.target
    assert isinstance(grid, VoxelGrid)
    assert isinstance(target, VoxelGrid)
    built = builder.build(grid, target, place.kernel)
    deliver(built, "table")
    return built


def sites_case(
    setting: MappingSetting, place: Place, step: str, builder: HashTable, figure: str
) -> Case:
    """Construction of the output sites."""
    params = {"step": step, "part": "output sites", "search": builder.search}
    row = place.row("map", builder.name, figure, params)
    grid, kernel = place.grid, place.kernel
    assert isinstance(grid, VoxelGrid)

    def prepared(_: int) -> Call:
        sites = bare(grid)
        return lambda: builder.sites(sites, kernel)

    def check() -> Checked:
        if not torch.equal(builder.sites(bare(grid), kernel).keys, place.target.keys):
            raise CheckFailed(f"{builder.name}, {step}, on {place.workload}: other output sites")
        return Proof(row), lambda: prepared

    return Case(row, check)


def search_case(
    setting: MappingSetting, place: Place, step: str, builder: HashTable, figure: str
) -> Case:
    """The search of the map, on output sites that are there."""
    params = {"step": step, "part": "map search", "search": builder.search}
    row = place.row("map", builder.name, figure, params, product="table")

    def calls() -> Calls:
        return same(lambda: _table(builder, place))

    def check() -> Checked:
        check_map_builder(builder, setting.where)
        return check_product(row, _table(builder, place), place.pairs), calls

    return Case(row, check)


#: A stage of the maps over the size of a scan.
OVER_SIZE = View("time", "n", "engine_cache", "kernel", about="one stage", kind="lines", log=True)

FIGURES: tuple[Figure[MappingSetting], ...] = (
    Figure(
        "spira_fig12",
        "mapping over the size of a scan",
        "scans of the paper's data sets",
        scaling,
        (
            View(
                "time",
                "n",
                "engine_cache",
                "kernel",
                "product",
                kind="lines",
                log=True,
                where=lambda row: not row.params,
                beside=MAPS,
            ),
            View(
                "time",
                "engine",
                "stage_name",
                "kernel workload product",
                kind="stacked",
                label=BUSY,
                suffix="stages",
                about="by stage, at the largest scan",
                where=lambda row: "stage" in (row.params or {}),
                largest=True,
            ),
        ),
    ),
    Figure(
        "torchsparse_fig13",
        "steps of the hash-table builder, each with those before it",
        "three frames of Waymo, CenterPoint",
        ablation,
        (View("time", "step", "part", "kernel workload", kind="stacked", about="by step"),),
        "the hash-table builder (a CUDA device)",
    ),
    Figure(
        "minuet_fig16",
        "the search alone",
        "Semantic3D and random clouds",
        query,
        (
            OVER_SIZE,
            View(
                "l2_hit_percent",
                "n",
                "engine",
                "=hits_in_the_L2_cache",
                kind="lines",
                label="hits [%]",
                suffix="l2",
                about="the L2 cache is empty before every kernel",
            ),
        ),
        "a profiler that sees the search",
    ),
    Figure(
        "minuet_fig17",
        "preparing the source side: sorting against a hash table",
        "KITTI, S3DIS, Semantic3D, ShapeNet",
        source_side,
        (OVER_SIZE,),
    ),
    Figure(
        "minuet_fig18",
        "sizes of the source blocks (B) and the query blocks (C)",
        "the paper's clouds and GPUs",
        block_sizes,
        (View("time", "B C", "engine", "kernel workload", about="B, C"),),
        "the double-traversed builder (a CUDA device)",
    ),
    Figure(
        "spira_fig15",
        "all maps of a network: one after the other, on streams, and as planned here",
        "the paper's networks on its data sets",
        plan_rows,
        (View("time", "schedule", "engine", "kernel workload", about="by schedule"),),
    ),
)

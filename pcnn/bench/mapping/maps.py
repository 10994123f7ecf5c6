"""Cases of single maps: whole, and stage by stage.

The stages of a map build are told apart in the trace of one call. Kernels before the first search
kernel prepare it (sorting, packing, filling a hash table), kernels after the last one finish the
product. So only the names of search kernels must be known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pcnn.bench.charts import STAGES
from pcnn.bench.conformance import check_map_builder
from pcnn.bench.harness import Call, Calls
from pcnn.bench.mapping.products import build, check_product, floor_ms
from pcnn.bench.place import Params, Place, bare
from pcnn.bench.run import Case, Checked, Columns, parts, whole
from pcnn.bench.setting import MappingSetting, Setting
from pcnn.bench.trace import KernelTime
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.maps import MapBuilder

#: Names of kernels, and of torch's operators on a CPU, that search. `split_queries` is the backward
#: half of the double-traversed search; `disjoint_map` looks for the one parent of every site.
SEARCH = re.compile(r"search|split_queries|z_delta|disjoint|first_windows", re.IGNORECASE)
#: Names that the pattern above meets but that do not search.
NO_SEARCH = re.compile(r"sort(?!ed)", re.IGNORECASE)


def searches(name: str) -> bool:
    """True if a kernel of this name looks for neighbours."""
    return bool(SEARCH.search(name)) and not NO_SEARCH.search(name)


def split(timeline: Sequence[KernelTime]) -> dict[str, float]:
    """Device time of every stage of a call [ms]; no search means that all is preparation."""
    found = [place for place, kernel in enumerate(timeline) if searches(kernel.name)]
    first, last = (found[0], found[-1]) if found else (len(timeline), len(timeline))
    sums = dict.fromkeys(STAGES, 0.0)
    for place, kernel in enumerate(timeline):
        stage = "prepare" if place < first else "search" if place <= last else "finish"
        sums[stage] += kernel.microseconds / 1e3
    return sums


def places(
    setting: MappingSetting, kernels: Sequence[tuple[int, int]] | None = None
) -> Iterator[Place]:
    """Every scene with every kernel; those of the setting unless others are given."""
    for scene in setting.scenes:
        for size, stride in setting.kernel_list if kernels is None else kernels:
            yield Place.of(scene, Kernel.of(size, stride), setting.where)


def map_case(
    setting: MappingSetting,
    place: Place,
    builder: MapBuilder,
    product: str,
    figure: str,
    params: Params | None = None,
    stages: Sequence[str] = (),
) -> Case:
    """A product of a builder, from the sorted keys alone; output sites are part of it.

    Args:
        setting: how to measure.
        place: scene and kernel.
        builder: finds the triplets.
        product: what is delivered.
        figure: name of the figure.
        params: settings that tell rows apart.
        stages: those that become rows; none: the map as a whole does.
    """
    inputs = setting.inputs if setting.inputs > 1 and not stages else None
    row = place.row("map", builder.name, figure, params, product=product, inputs=inputs)

    def check() -> Checked:
        check_map_builder(builder, setting.where)
        grid, target = place.grid, place.target
        assert isinstance(grid, VoxelGrid)
        assert isinstance(target, VoxelGrid)
        built = build(bare(grid), builder, place.kernel, product)
        proof = check_product(row, built, place.pairs)
        floor = None
        if setting.rate:  # often below a microsecond
            floor = round(floor_ms(built, grid, target, product, setting.rate), 6)
        calls = builds(place, builder, product, setting.inputs)
        return proof, lambda: calls if stages else (calls, floor)

    return Case(row, check, parts(split, "stage", stages) if stages else _with_floor)


def _with_floor(
    made: tuple[Calls, float | None], setting: Setting, count: bool
) -> Iterator[Columns]:
    calls, floor = made
    for columns in whole(calls, setting, count):
        yield {**columns, "floor_ms": floor}


def builds(place: Place, builder: MapBuilder, product: str, inputs: int = 1) -> Calls:
    """Calls that build from the sorted keys of the sites alone, from copies of them in turn."""
    grid = place.grid
    assert isinstance(grid, VoxelGrid)
    copies = [grid, *(replace(grid, keys=grid.keys.clone()) for _ in range(inputs - 1))]

    def prepared(index: int) -> Call:
        sites = bare(copies[index % len(copies)])
        return lambda: build(sites, builder, place.kernel, product)

    return prepared

"""TorchSparse Fig. 13: output construction and map search with one more of its steps at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from pcnn.bench.conformance import check_map_builder
from pcnn.bench.harness import Call, measure
from pcnn.bench.mapping.builders import HASH_TABLE_STEPS, HASHED, builders_for
from pcnn.bench.mapping.check import check_product
from pcnn.bench.mapping.measured import Case, Setting
from pcnn.bench.mapping.products import bare, deliver
from pcnn.bench.rows import Row
from pcnn.bench.verify import CheckFailed
from pcnn.geometry import KernelMap
from pcnn.maps.hash_table import HashTable

#: Submanifold, where symmetry counts, and down-sampling, where output sites are constructed.
KERNELS = ((3, 1), (3, 2))
PRODUCT = "table"


def ablation_rows(setting: Setting, figure: str) -> Iterator[Row]:
    """Check, then time, both parts of every step of the hash-table builder.

    Output sites are those that some triplet reaches, as in the paper. Where the sites are too far
    apart for a grid, that step is a row without times, and the later steps go on with the hash
    table. No rows where no hash table serves the device.

    Raises:
        CheckFailed: other sites, or another table, than the oracle's.
    """
    if not any(builder.name in HASHED for builder in builders_for(setting.device)):
        return
    for plain in setting.cases(KERNELS):
        case = Case(plain.workload, replace(bare(plain.grid), downsampling="reached"), plain.kernel)
        gridless = False
        for step, listed in HASH_TABLE_STEPS:
            on_grid = listed.search == "grid"
            builder = replace(listed, search="hash") if on_grid and gridless else listed
            try:
                searched = _search_row(setting, case, step, builder, figure)
            except ValueError as error:
                if builder.search != "grid":
                    raise
                gridless = True
                yield _without_times(case, step, listed, figure, str(error))
                continue
            if case.kernel.is_strided:
                yield _sites_row(setting, case, step, builder, figure)
            yield searched


def _sites_row(setting: Setting, case: Case, step: str, builder: HashTable, figure: str) -> Row:
    if not torch.equal(builder.sites(bare(case.grid), case.kernel).keys, case.target.keys):
        raise CheckFailed(f"{builder.name}, {step}, on {case.workload}: other output sites")

    def prepared(_: int) -> Call:
        grid = bare(case.grid)
        return lambda: builder.sites(grid, case.kernel)

    return _row(setting, case, builder, figure, (None, step, "output sites"), prepared)


def _search_row(setting: Setting, case: Case, step: str, builder: HashTable, figure: str) -> Row:
    def run() -> KernelMap:
        built = builder.build(case.grid, case.target, case.kernel)
        deliver(built, PRODUCT)
        return built

    check_map_builder(builder, setting.device)
    configuration = case.configuration(builder, PRODUCT, {"step": step})
    check_product(configuration, run(), case.truth).admit(configuration)
    return _row(setting, case, builder, figure, (PRODUCT, step, "map search"), lambda _: run)


def _row(
    setting: Setting,
    case: Case,
    builder: HashTable,
    figure: str,
    what: tuple[str | None, str, str],
    calls: Callable[[int], Call],
) -> Row:
    product, step, part = what
    measured = measure(
        calls,
        setting.device,
        repeats=setting.repeats,
        budget_s=setting.budget_s,
        cold=setting.cold,
        count=setting.count,
    )
    return Row(
        "map",
        case.workload,
        builder.name,
        product=product,
        n=case.grid.rows,
        triplets=case.triplets,
        k=case.kernel.size[0],
        stride=case.kernel.stride[0],
        figure=figure,
        params={"step": step, "part": part, "search": builder.search},
        checked=True,
        **measured.columns(),
    )


def _without_times(case: Case, step: str, builder: HashTable, figure: str, reason: str) -> Row:
    return Row(
        "map",
        case.workload,
        builder.name,
        n=case.grid.rows,
        k=case.kernel.size[0],
        stride=case.kernel.stride[0],
        figure=figure,
        params={"step": step, "search": builder.search, "left_out": reason},
    )

"""The papers' figures on mapping, each measured anew on the scenes at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pcnn.bench.charts import BUSY, View
from pcnn.bench.mapping.ablation import ablation_rows
from pcnn.bench.mapping.builders import BLOCK_SIZES, HASHED, builders_for, for_product
from pcnn.bench.mapping.l2_hits import l2_hit_percent
from pcnn.bench.mapping.measured import Case, Setting, attempt, stage_rows, timed_row
from pcnn.bench.mapping.network_plan import plan_rows
from pcnn.bench.mapping.source_side import sort_row
from pcnn.bench.rows import Row
from pcnn.bench.suite import Figure
from pcnn.maps import MapBuilder
from pcnn.maps.double_traversed import DoubleTraversed

SUBMANIFOLD_3 = ((3, 1),)


def scaling(setting: Setting, figure: str) -> Iterator[Row]:
    """Spira Fig. 12: every builder, product and kernel over scenes of growing size, with stages."""
    for case in setting.cases():
        for builder in setting.builders:
            for product in setting.products:
                chosen = for_product(builder, product)
                yield from attempt(timed_row, setting, case, chosen, product, figure)
            staged = "ready" if "ready" in setting.products else setting.products[-1]
            yield from attempt(stage_rows, setting, case, builder, staged, figure)


def query(setting: Setting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 16: time of the search alone, and its hits in the L2 cache."""
    for case in setting.cases(SUBMANIFOLD_3):
        for builder in setting.builders:
            for row in attempt(stage_rows, setting, case, builder, "table", figure):
                if setting.ncu and _stage(row) == "search":
                    yield from _with_hits(row, case, builder)
                elif _stage(row) in ("search", None):
                    yield row


def _with_hits(row: Row, case: Case, builder: MapBuilder) -> Iterator[Row]:
    try:
        yield l2_hit_percent(row, case, builder)
    except RuntimeError as error:
        yield row
        params = {**(row.params or {}), "left_out": f"L2 hits: {error}"}
        yield replace(row, gpu_busy_ms=None, checked=False, params=params)


def source_side(setting: Setting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 17: sorting the coordinates, against filling a hash table with them."""
    for case in setting.cases(SUBMANIFOLD_3):
        yield sort_row(setting, case, figure)
        for builder in (b for b in setting.builders if b.name in HASHED):
            for row in attempt(stage_rows, setting, case, builder, "table", figure):
                if _stage(row) in ("prepare", None):
                    yield row


def _stage(row: Row) -> str | None:
    """Stage of a row; a row that was left out has none."""
    return str(row.params["stage"]) if row.params and "stage" in row.params else None


def block_sizes(setting: Setting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 18: time over the sizes of source and query blocks.

    No rows where no double-traversed search serves the device.
    """
    if not any(builder.name == DoubleTraversed.name for builder in builders_for(setting.device)):
        return
    for case in setting.cases(SUBMANIFOLD_3):
        for source, target, builder in BLOCK_SIZES:
            params = {"B": source, "C": target}
            yield from attempt(timed_row, setting, case, builder, "table", figure, params)


#: A stage of the maps over the size of a scan.
OVER_SIZE = View("time", "n", "engine_cache", "kernel", about="one stage", kind="lines", log=True)

FIGURES: tuple[Figure[Setting], ...] = (
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
        ablation_rows,
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

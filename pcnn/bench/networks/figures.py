"""The papers' figures on whole networks, each measured on the scenes at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pcnn.bench import engines, run
from pcnn.bench.charts import BUSY, View
from pcnn.bench.engines import Entry, on
from pcnn.bench.networks.cases import NetworkSize, network_rows, parts
from pcnn.bench.networks.choices import chosen_thresholds, chosen_tiles
from pcnn.bench.rows import Row
from pcnn.bench.scenes import load_scene
from pcnn.bench.setting import NetworksSetting
from pcnn.bench.suite import Figure
from pcnn.dataflows.gather_scatter import TORCHSPARSE
from pcnn.maps.hash_table import HashTable
from pcnn.ops.engine import Engine

Measure = Callable[[NetworksSetting, str], Iterator[Row]]

#: Clouds of a batch in Spira Table 4.
BATCHES = (1, 4)


def with_papers(setting: NetworksSetting) -> list[Entry]:
    """The setting's engines, and the papers'."""
    return engines.with_papers(setting.engines, setting.where)


def inference(
    *models: str,
    compared: Callable[[NetworksSetting], list[Entry]] = with_papers,
    parts: run.Measure | None = None,
) -> Measure:
    """Inference from cells of these networks, or of the setting's where none is named."""

    def measure(setting: NetworksSetting, figure: str) -> Iterator[Row]:
        sizes = [NetworkSize(name) for name in models]
        return network_rows(setting, figure, sizes, ["infer"], compared(setting), parts)

    return measure


def over_generated(kind: str, *models: str) -> Measure:
    """Inference from cells on generated scenes of growing size."""

    def measure(setting: NetworksSetting, figure: str) -> Iterator[Row]:
        scenes = [load_scene(f"{kind}_{size}k") for size in setting.size_list]
        return inference(*models)(setting.having(scenes=scenes), figure)

    return measure


def kernels_and_batches(setting: NetworksSetting, figure: str) -> Iterator[Row]:
    """Spira Table 4: MinkUNet of larger kernels and batches, time and peak memory.

    Networks of large kernels are checked on few voxels: the reference keeps all their products.
    """
    few = setting.having(check_voxels=min(setting.check_voxels, 20_000))
    for batches in BATCHES:
        for size in setting.kernel_size_list:
            chosen = setting if size <= 3 and batches == 1 else few
            yield from network_rows(
                chosen, figure, [NetworkSize("minkunet", size, batches)], ["infer"]
            )


def torchsparse_first(setting: NetworksSetting) -> list[Entry]:
    """Gather-scatter as TorchSparse has it, then the setting's other engines."""
    first: Entry = Engine("torchsparse", on(setting.where, HashTable()), TORCHSPARSE), {}
    own: list[Entry] = [(e, {}) for e in setting.engines if e.name != "torchsparse"]
    return [first, *own]


def ideas(name: str, steps: tuple[engines.Step, ...], *models: str) -> Measure:
    """Inference from cells with one more idea of a paper at a time."""
    return inference(*models, compared=lambda s: engines.steps(name, s.where, steps))


#: A chart a mode, a panel a network, a group of bars a scene, a bar an engine.
BARS: Any = {"x": "workload", "series": "engine", "panel": "model", "chart": "mode"}
MEMORY = "peak memory above what was there [MiB]"
OVER_SIZE = View(
    "wall_ms", "n", "engine", "model", kind="lines", log=True, about="inference from cells"
)

FIGURES: tuple[Figure[NetworksSetting], ...] = (
    Figure(
        "networks",
        "whole networks",
        "",
        network_rows,
        (
            View(**BARS, y="wall_ms"),
            View(**BARS, y="gpu_busy_ms", label=BUSY, suffix="busy"),
            View(**BARS, y="memory_mb", label=MEMORY, suffix="memory"),
        ),
        "a net",
    ),
    Figure(
        "torchsparse_fig11",
        "networks by engine, runs in a second; figure 14 in absolute numbers",
        "MinkUNet and CenterPoint on SemanticKITTI, nuScenes and Waymo",
        inference("minkunet", "sparse_resnet"),
        (View(**BARS, y="runs_per_second", label="runs in a second"),),
    ),
    Figure(
        "minuet_fig12",
        "networks by engine",
        "SemanticKITTI, S3DIS, Semantic3D, ShapeNetSem",
        inference("sparse_resnet", "minkunet"),
        (View(**BARS, y="wall_ms"),),
    ),
    Figure(
        "minuet_fig13",
        "networks by engine, over the density of a random scene",
        "the same kind of scene, 400^3 cells",
        over_generated("box400", "sparse_resnet", "minkunet"),
        (OVER_SIZE,),
    ),
    Figure(
        "spira_fig8",
        "networks by engine; figures 9 and 18 to 21 on other GPUs",
        "SemanticKITTI, ScanNet and Waymo",
        inference(),
        (View(**BARS, y="wall_ms"),),
    ),
    Figure(
        "spira_fig16",
        "networks by engine, over the density of a random scene",
        "the same kind of scene, 200^3 cells",
        over_generated("box200"),
        (OVER_SIZE,),
    ),
    Figure(
        "spira_fig17",
        "SparseResNet21 by engine, over the size of a random scene of 1.25 %",
        "the same kind of scene, 200 cells high",
        over_generated("slab", "sparse_resnet"),
        (OVER_SIZE,),
    ),
    Figure(
        "spira_table4",
        "MinkUNet42 by kernel size (K) and batch (B)",
        "Waymo",
        kernels_and_batches,
        (
            View("wall_ms", "sizes", "engine", "model workload", suffix="time"),
            View("memory_mb", "sizes", "engine", "model workload", label=MEMORY, suffix="memory"),
        ),
    ),
    Figure(
        "torchsparse_fig4",
        "where the time of a network goes, by engine",
        "MinkUNet on SemanticKITTI, CenterPoint on Waymo",
        inference("minkunet", "sparse_resnet", compared=torchsparse_first, parts=parts),
        (View("gpu_busy_ms", "engine", "part", "model workload", kind="stacked", label=BUSY),),
    ),
    Figure(
        "minuet_fig14",
        "networks with one more of Minuet's ideas at a time",
        "SemanticKITTI, S3DIS, Semantic3D, ShapeNetSem",
        ideas("minuet", engines.MINUET_STEPS, "sparse_resnet", "minkunet"),
        (View("wall_ms", "step", "engine", "model workload"),),
    ),
    Figure(
        "minuet_fig20",
        "quickest tiles of gather and scatter, layer by layer of MinkUNet42",
        "the paper's clouds and GPUs",
        chosen_tiles,
        tuple(
            View(part, "of_layer", f"={part}", "workload", label="channels", log=True)
            for part in ("gather", "scatter")
        ),
    ),
    Figure(
        "spira_fig13",
        "MinkUNet42 with one more of Spira's ideas at a time",
        "SemanticKITTI, ScanNet and Waymo",
        ideas("spira", engines.SPIRA_STEPS, "minkunet"),
        (View("wall_ms", "step", "engine", "model workload"),),
    ),
    Figure(
        "spira_table1",
        "layers by their quickest threshold; tables 2 and 3 are the other networks",
        "SemanticKITTI, ScanNet and Waymo",
        chosen_thresholds,
        (View("layers", "model", "t", "model workload", kind="stacked", label="layers"),),
        "a CUDA device",
    ),
)

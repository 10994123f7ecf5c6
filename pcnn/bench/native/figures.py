"""The figures of PointCNN++, and of what native points must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pcnn.bench.charts import WALL, View
from pcnn.bench.native.layers import by_dataflow, in_groups, of_same_size, over_rooms, scanned
from pcnn.bench.native.memory import breakdown_rows, largest_rows, step_rows
from pcnn.bench.native.network import network_rows
from pcnn.bench.native.triplets import triplet_rows
from pcnn.bench.peers import NATIVE
from pcnn.bench.rows import Row
from pcnn.bench.setting import NativeSetting
from pcnn.bench.suite import Figure, until

Measure = Callable[[NativeSetting, str], Iterator[Row]]

S3DIS = "10 scenes of S3DIS"


def in_time(measure: Measure) -> Measure:
    """Begin nothing more after the setting's seconds."""

    def measure_for_a_while(setting: NativeSetting, figure: str) -> Iterator[Row]:
        yield from until(measure(setting, figure), setting.limit, figure)

    return measure_for_a_while


MEMORY = "peak memory [MiB]"
#: A panel a kind of row or mode, a line a line, over the points of the rooms.
OVER_POINTS: Any = {
    "x": "n",
    "series": "engine",
    "panel": "title",
    "kind": "lines",
    "about": "mean of the rooms",
    "log": True,
    "x_label": "points",
    "mean": True,
}


def by_cloud(name: str, shows: str, measure: Measure, x: str) -> Figure[NativeSetting]:
    """A figure of our own: a chart a kind of row, a panel a cloud, a point a variant."""
    view = View(
        "wall_ms",
        x,
        "engine",
        "cloud title",
        "kind",
        kind="points",
        log=True,
        label=WALL,
        beside=NATIVE,
    )
    return Figure(name, shows, "", measure, (view,))


#: Parts of the memory of a training step, one upon the other.
MEMORY_PARTS = tuple(
    View(
        f"{part}_mb",
        "engine_peak",
        f"={part}",
        "workload",
        kind="stacked",
        label="needed memory [MiB]",
        about="peak over the needed memory",
    )
    for part in ("activations", "weights", "gradients", "layouts")
)
PEAK = View(
    "memory_mb",
    "n",
    "engine",
    "title",
    kind="lines",
    label=MEMORY,
    about="peak of the allocator",
    log=True,
    x_label="points",
    up_to=True,
)
_FIGURES: tuple[Figure[NativeSetting], ...] = (
    Figure(
        "pointcnnpp_fig3",
        "memory and time of one layer, 64 -> 128 channels, K = 27, with its triplets",
        S3DIS,
        over_rooms("map+layer", "map+train"),
        (
            View(**OVER_POINTS, y="memory_mb", label=MEMORY),
            View(**OVER_POINTS, y="wall_ms", label=WALL, suffix="time"),
        ),
    ),
    Figure(
        "pointcnnpp_fig4",
        "time of one layer, 64 -> 128 channels, K = 27, on triplets that are there",
        S3DIS,
        over_rooms("layer", "backward"),
        (View(**OVER_POINTS, y="time"),),
    ),
    Figure(
        "pointcnnpp_fig5",
        "ResNet18 by what computes its convolutions: time and peak memory",
        S3DIS,
        network_rows,
        (
            View(**OVER_POINTS, y="wall_ms", label=WALL),
            View(**OVER_POINTS, y="memory_mb", label=MEMORY, suffix="memory"),
        ),
    ),
    Figure(
        "pointcnnpp_figJ",
        "peak memory of ResNet18 over the size of the cloud, up to the largest that fits",
        "growing clouds on a GPU of 24 GB",
        largest_rows,
        (PEAK,),
        "a CUDA device",
    ),
    by_cloud("native_layers", "layers on scans", scanned, "layer"),
    by_cloud(
        "native_triplets",
        "triplets by slot (pairs), with layouts for forward (ready) and for backward (train)",
        triplet_rows,
        "product_of_map",
    ),
    by_cloud("native_groups", "a layer in groups of channels", in_groups, "groups_layer"),
    by_cloud(
        "native_dataflows",
        "layers on native points by dataflow; triplets sorted by k, i and j",
        by_dataflow,
        "layer",
    ),
    by_cloud(
        "native_same_t",
        "layers on native points and on voxels with as many triplets",
        of_same_size,
        "layer",
    ),
    Figure(
        "native_memory",
        "what a training step of ResNet18 must hold, and its peak over that",
        "",
        breakdown_rows,
        MEMORY_PARTS,
    ),
    by_cloud(
        "native_step20m",
        "one layer and one training step of ResNet18 on one large room",
        step_rows,
        "size",
    ),
)
FIGURES = tuple(replace(figure, measure=in_time(figure.measure)) for figure in _FIGURES)

"""Charts of this suite: each its rows, and what is drawn of them."""

from __future__ import annotations

from typing import Any

from pcnn.bench.charts import BUSY, View
from pcnn.bench.latency.cases import latency_rows, stage_rows, throughput_rows
from pcnn.bench.latency.drive import drive_rows
from pcnn.bench.latency.setting import LatencySetting
from pcnn.bench.latency.soak import replay_rows, same_rows
from pcnn.bench.peers import NETWORKS
from pcnn.bench.suite import Figure

#: A panel a network, a group of points a scan, a point a line.
POINTS: Any = {
    "x": "workload",
    "series": "engine",
    "panel": "model",
    "chart": "mode dtype",
    "kind": "points",
    "log": True,
}

FIGURES: tuple[Figure[LatencySetting], ...] = (
    Figure(
        "latency",
        "one scan from points to features",
        "",
        latency_rows,
        (
            View(**POINTS, y="wall_ms", label="median [ms]", beside=NETWORKS),
            View(**POINTS, y="p99_ms", label="99th percentile [ms]", suffix="p99"),
        ),
    ),
    Figure(
        "latency_drive",
        "scans of varying size one after another",
        "",
        drive_rows,
        (
            View(
                "wall_ms",
                "n",
                "engine",
                "model workload",
                "dtype",
                kind="lines",
                label="median of a scan [ms]",
                where=lambda row: (row.params or {}).get("mode") == "scan",
            ),
        ),
    ),
    Figure(
        "latency_throughput",
        "clouds a second by clouds in a call (B)",
        "",
        throughput_rows,
        (
            View(
                "clouds_per_second",
                "sizes",
                "engine",
                "model workload",
                "dtype",
                label="clouds a second",
            ),
        ),
    ),
    Figure(
        "latency_stages",
        "where the time of a scan goes",
        "",
        stage_rows,
        (
            View(
                "gpu_busy_ms", "engine", "stage", "model workload", "dtype", "stacked", label=BUSY
            ),
            View(
                "floor_ms",
                "engine",
                "stage",
                "model workload",
                "dtype",
                "stacked",
                label="lower bound [ms]",
                where=lambda row: (row.params or {}).get("stage") != "whole",
                suffix="floor",
            ),
        ),
        "a CUDA device",
    ),
    Figure(
        "latency_same",
        "outputs of a graph beside eager, on clouds of every size",
        "",
        same_rows,
        needs="a CUDA device",
    ),
    Figure(
        "latency_replays",
        "memory over many calls",
        "",
        replay_rows,
        needs="a CUDA device",
    ),
)

"""Settings of the suites that take milliseconds, and figures whose cases are listed, not run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch

from pcnn.bench import run as run_file
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, recorded, whole
from pcnn.bench.scenes import Scene, noise
from pcnn.bench.setting import LayersSetting, MappingSetting, NativeSetting, NetworksSetting
from pcnn.bench.suite import Figure
from pcnn.geometry import grid_of_cells

CELLS = torch.from_numpy(noise(200, fill=0.3))
SCENES = [Scene("small", grid_of_cells(CELLS)), Scene("half", grid_of_cells(CELLS[:100]))]
SMALL = SCENES[:1]
#: Times of a row that is listed.
TIMES = {"wall_ms": 2.0, "min_ms": 1.0, "gpu_busy_ms": 1.0, "memory_mb": 8.0}


def of_maps(**other: Any) -> MappingSetting:
    fields = {"device": "cpu", "repeats": 3, "budget": 0.01, "count": False, "scenes": SMALL}
    return MappingSetting().having(**fields | other)


def of_layers(**other: Any) -> LayersSetting:
    fields = {"device": "cpu", "repeats": 3, "count": False, "engine": ["auto"], "scenes": SCENES}
    return LayersSetting().having(**fields | {"layers": ["4:4:3"]} | other)


def of_networks(**other: Any) -> NetworksSetting:
    fields = {"device": "cpu", "repeats": 3, "engine": ["auto"], "width": 0.25, "scenes": SMALL}
    fields |= {"model": ["sparse_resnet"], "check_voxels": 300, "sizes": "1"}
    return NetworksSetting().having(**fields | {"kernel_sizes": "3,5"} | other)


def of_points(*names: str, **other: Any) -> NativeSetting:
    fields = {"device": "cpu", "rooms": 1, "repeats": 3, "check": 250, "step": 0.4, "width": 0.125}
    return NativeSetting().having(**fields | {"line": names, "size_list": [300]} | other)


def rows_of(figures: Iterable[Figure[Any]], name: str, setting: Any) -> list[Row]:
    (figure,) = [figure for figure in figures if figure.name == name]
    return list(figure.measure(setting, name))


def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all suites list their cases as rows, which are neither checked nor timed."""

    def run(cases: Iterable[Case], setting: Any) -> Iterator[Row]:
        for case in cases:
            part = {} if case.measure is whole else {"part": "products", "stage": "search"}
            yield recorded(case.row, TIMES | {"params": part})

    timed = run_file.run
    for name, module in list(sys.modules.items()):
        if name.startswith("pcnn.bench.") and getattr(module, "run", None) is timed:
            monkeypatch.setattr(module, "run", run)


def left_out(rows: Iterable[Row]) -> list[str]:
    return [str((row.params or {})["left_out"]) for row in rows if "left_out" in (row.params or {})]

"""Scenes and options of benchmarks that take milliseconds."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.rows import Row, is_measured
from benchmarks.run import Options
from benchmarks.workloads import Scene, noise
from pcnn.geometry import grid_of_cells

CELLS = torch.from_numpy(noise((9, 9, 8), 200))
SCENES = [Scene("small", grid_of_cells(CELLS))]


def options(**other: Any) -> Options:
    given: dict[str, Any] = {"repeats": 1, "budget": 0.0, "sizes": [0.2], "kernel_sizes": [3]}
    given |= {"rooms": 1, "width": 0.125, "check": 200, "largest": 0.2, "kernels": ["3:1", "2:2"]}
    return Options(**given | other)


def left_out(rows: list[Row]) -> list[str]:
    return [row["result"]["left_out"] for row in rows if not is_measured(row)]

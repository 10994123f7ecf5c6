"""Preparing the source side of a search by sorting: pack the coordinates, sort the keys."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.bench.harness import measure, same
from pcnn.bench.mapping.measured import Case, Setting
from pcnn.bench.rows import Row
from pcnn.bench.verify import CheckFailed
from pcnn.geometry import KeyFormat

#: What rows call it, beside the names of builders.
ENGINE = "pack_and_sort"


def pack_and_sort(coords: Tensor, layout: KeyFormat) -> tuple[Tensor, Tensor]:
    """Sorted keys ``[N]`` int64 of coordinates ``[N, 4]``, and the row each comes from."""
    keys, order = layout.pack(coords).sort()
    return keys, order


def sort_row(setting: Setting, case: Case, figure: str) -> Row:
    """Check, then time, packing and sorting the shuffled coordinates of a scene.

    Raises:
        CheckFailed: other keys than the grid's.
    """
    grid = case.grid
    random = torch.Generator().manual_seed(0)
    shuffled = grid.coords[torch.randperm(grid.rows, generator=random).to(grid.device)]
    if not torch.equal(pack_and_sort(shuffled, grid.key_format)[0], grid.keys):
        raise CheckFailed(f"{ENGINE} on {case.workload}: sorted keys are not those of the grid")
    measured = measure(
        same(lambda: pack_and_sort(shuffled, grid.key_format)),
        setting.device,
        repeats=setting.repeats,
        budget_s=setting.budget_s,
        cold=setting.cold,
    )
    return Row(
        "map",
        case.workload,
        ENGINE,
        n=grid.rows,
        figure=figure,
        params={"stage": "prepare"},
        checked=True,
        **measured.columns(),
    )

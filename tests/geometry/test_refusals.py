"""What geometries refuse: a call, and a word of the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from pcnn.geometry import (
    Geometry,
    Kernel,
    VoxelGrid,
    grid_of_cells,
    point_set_of,
    quantize,
)
from pcnn.maps import SortedSearch
from tests.clouds import surface_grid
from tests.maps.native_points import scan

INF, NAN, FAR = float("inf"), float("nan"), float(2.0**46)
FOUR = torch.zeros(3, 4)
ENDLESS = torch.tensor([[0.0] * 3, [0.0, NAN, -INF], [0.0] * 3])
LIMIT = (1 << 17) - 1

#: Arguments beside three points, that neither voxels nor native points are made of.
MAKERS: list[tuple[dict[str, Any], str]] = [
    ({"points": FOUR}, r"\[P, 3\]"),
    ({"points": ENDLESS}, "1 of 3 points are NaN or infinite, the first is 1"),
    ({"points": FOUR[:, 1:].long()}, "floating"),
    *(({"voxel_size": size}, "positive") for size in (0.0, (0.1, 0.2), INF)),
    ({"batch": torch.zeros(2).long()}, "batch must be"),
    ({"batch": torch.full((3,), 0.5)}, "batch must hold integers"),
    ({"batch": torch.tensor([0, 1, 2]), "batch_size": 2}, "do not fit"),
    ({"batch": torch.tensor([0, -1, 0])}, "do not fit"),
    ({"batch_size": 600}, "1 to 511"),
]
#: Cells that are none.
CELLS: list[tuple[torch.Tensor, str]] = [
    (FOUR[:, 2:].long(), r"cells must be \[P, 3\] \(x, y, z\), got \(3, 2\)"),
    (FOUR.long(), r"batch=cells\[:, 0\]"),
    (torch.tensor([[0.0, 1, 2], [0, 0.5, 0]]), "1 of 2 rows are fractional.* first is 1"),
    *((torch.tensor([[0, value, 0]]), "1 of 1 rows are fractional") for value in (NAN, -INF)),
    (FOUR[:, 1:].bool(), "whole numbers, got torch.bool"),
    (FOUR[:, 1:].to(torch.complex64), "whole numbers"),
    *((torch.full((2, 3), far), "packed key") for far in (1 << 40, 1e30)),
    (torch.tensor([[LIMIT + 1, 0, 0]]), "centre the cloud"),
]
SHIFTED = torch.tensor([[0.0, -LIMIT + 0.5, 0], [0, LIMIT + 1.5, 0]]).double()
GRID, POINTS, HALVED = surface_grid(200, batch_size=2), scan(90), Kernel.of(2, 2)
OTHER = surface_grid(50)
CALLS: list[tuple[Callable[[], object], str]] = [
    *(
        (partial(make, **{"points": FOUR[:, 1:], "voxel_size": 0.1, **given}), word)
        for make in (quantize, point_set_of)
        for given, word in MAKERS
    ),
    *((partial(grid_of_cells, cells), word) for cells, word in CELLS),
    (lambda: point_set_of(FOUR[:, 1:], thin=-1.0), "thin must be positive"),
    *((lambda far=far: point_set_of(FOUR[:, 1:].double() + far), "offset") for far in (1e300,)),
    (lambda: point_set_of(FOUR[:, 1:].double() + FAR, voxel_size=0.25), "subtract an offset"),
    (lambda: point_set_of(SHIFTED), r"cells lie at -131071\.\.131072 along y"),
    (lambda: Kernel.of(0), "kernel_size"),
    (lambda: Kernel.of(3, 0), "stride"),
    (lambda: Kernel.of(3, 1, 0), "dilation"),
    (lambda: Kernel.of((3, 3)), "three"),
    (lambda: VoxelGrid.collate([GRID]), "single clouds"),
    (lambda: VoxelGrid.collate([]), "at least one"),
    (lambda: surface_grid(9).generated(HALVED), "divisible"),
    (
        lambda: GRID.add_map(GRID, Kernel.of(3), SortedSearch().build(OTHER, OTHER, Kernel.of(3))),
        "is none of 27 slots",
    ),
]


@pytest.mark.parametrize(("call", "word"), CALLS)
def test_what_cannot_be_is_refused(call: Callable[[], object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        call()


@pytest.mark.parametrize("geometry", [GRID, POINTS], ids=lambda one: one.name)
def test_keys_out_of_order_are_seen_on_the_host(geometry: Geometry) -> None:
    with pytest.raises(ValueError, match="unsorted"):
        replace(geometry, keys=geometry.keys.flip(0))

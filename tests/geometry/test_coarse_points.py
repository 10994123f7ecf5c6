import itertools

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, PointSet, point_set_of
from tests.clouds import batched

STRIDES = [2, 3, (1, 1, 2), (2, 1, 3)]


def nearest(fine: PointSet, coarse: PointSet, stride: tuple[int, ...]) -> dict[tuple, int]:
    """Fine row of every coarse cell, by loops over Python numbers."""
    best: dict[tuple, tuple[float, int]] = {}
    begin = (coarse.corners - coarse.origins)[fine.batch_index].tolist()
    for row, (cell, point, start) in enumerate(
        zip(fine.cells.tolist(), fine.points.double().tolist(), begin, strict=True)
    ):
        above = (cell[0], *(c // s for c, s in zip(cell[1:], stride, strict=True)))
        offsets = [
            p - ((c + 0.5) * g + b)
            for p, c, g, b in zip(point, above[1:], coarse.voxel_size, start, strict=True)
        ]
        x, y, z = (d * d for d in offsets)
        best[above] = min(best.get(above, (float("inf"), row)), (x + y + z, row))
    return {cell: row for cell, (_, row) in best.items()}


@pytest.mark.parametrize("stride", STRIDES, ids=str)
@pytest.mark.parametrize("shift", [0.0, 1e5])
@pytest.mark.parametrize("n", [1, 300])
def test_the_nearest_point_of_every_cell_is_kept(n: int, shift: float, stride: int) -> None:
    points, batch = batched(n)
    fine = point_set_of(points + shift, batch, 3, (0.5, 0.4, 0.6))
    for _ in range(2):
        kernel = Kernel.of(3, stride)
        coarse = fine.strided(kernel)
        expected = nearest(fine, coarse, kernel.stride)
        assert [tuple(c) for c in coarse.cells.tolist()] == sorted(expected)
        assert coarse.chosen.tolist() == [expected[cell] for cell in sorted(expected)]
        assert torch.equal(coarse.points, fine.points[coarse.chosen])  # not snapped
        assert coarse.one_per_cell
        assert fine.strided(kernel) is coarse
        assert fine.strided(Kernel.of(kernel.stride, kernel.stride)) is coarse
        assert fine.rows_above(coarse) is coarse.inverse
        # inverse: the coarse cell above every fine row
        assert coarse.inverse is not None
        above = fine.cells.clone()
        above[:, 1:] = torch.div(
            above[:, 1:], torch.tensor(kernel.stride, dtype=torch.int32), rounding_mode="floor"
        )
        assert torch.equal(coarse.cells[coarse.inverse], above)
        for size, finer, step in zip(
            coarse.voxel_size, fine.voxel_size, kernel.stride, strict=True
        ):
            assert size == finer * step
        fine = coarse
    assert fine.tensor_stride == tuple(s * s for s in kernel.stride)


def test_of_equally_near_points_the_first_row_is_kept() -> None:
    corners = list(itertools.product((0.25, 1.75), repeat=3))
    points = torch.tensor([*corners, *corners])  # all equally far from (1, 1, 1), each twice
    for order in (torch.arange(16), torch.arange(16).flip(0)):
        fine = point_set_of(points[order])
        coarse = fine.strided(Kernel.of(2, 2))
        assert coarse.chosen.tolist() == [0]
        # of the two equal points the one that came first in the input
        assert int(fine.chosen[0]) == min(
            row for row, point in enumerate(points[order].tolist()) if point == [0.25] * 3
        )


def brute_thin(points: Tensor, batch: Tensor, edge: float) -> set[int]:
    best: dict[tuple, tuple[float, int]] = {}
    for row, (b, point) in enumerate(zip(batch.tolist(), points.tolist(), strict=True)):
        cell = tuple(int(p // edge) for p in point)
        distance = sum((p - (c + 0.5) * edge) ** 2 for p, c in zip(point, cell, strict=True))
        key = (b, *cell)
        best[key] = min(best.get(key, (float("inf"), row)), (distance, row))
    return {row for _, row in best.values()}


@pytest.mark.parametrize("n", [1, 400])
def test_thinning_keeps_the_nearest_point_of_every_small_cell(n: int) -> None:
    points, batch = batched(n)
    made = point_set_of(points, batch, 3, 0.75, thin=0.25)
    assert made.inverse is not None
    assert set(made.chosen.tolist()) == brute_thin(points, batch, 0.25)
    assert made.voxel_size == (0.75, 0.75, 0.75)
    assert torch.equal(made.keys, made.keys.sort().values)
    assert torch.equal(made.batch_index, batch[made.chosen])
    # every point stands for itself or for one of its own small cell
    kept = points[made.chosen][made.inverse]
    assert torch.equal(torch.floor(kept / 0.25), torch.floor(points / 0.25))
    assert torch.equal(made.inverse[made.chosen], torch.arange(made.rows))

import pytest
import torch

from pcnn.geometry import Kernel, PointSet, point_set_of
from tests.clouds import batched, cloud


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 300])
def test_rows_are_sorted_by_cell_and_name_their_points(n: int, dtype: torch.dtype) -> None:
    points, batch = batched(n)
    points = points.to(dtype)
    size = (0.3, 0.2, 0.5)
    made = point_set_of(points, batch, 3, size)
    assert made.rows == n
    cells = torch.floor(points.double() / torch.tensor(size, dtype=torch.float64)).long()
    keys = [(b, *c, p) for p, (b, c) in enumerate(zip(batch.tolist(), cells.tolist(), strict=True))]
    assert made.chosen.tolist() == [key[-1] for key in sorted(keys)]
    assert [tuple(c) for c in made.cells.tolist()] == [key[:4] for key in sorted(keys)]
    assert made.inverse is not None
    assert torch.equal(made.chosen[made.inverse], torch.arange(n))
    assert torch.equal(made.batch_index, batch[made.chosen])
    assert (made.positions - points[made.chosen].double()).abs().max() < 1e-6
    counts = torch.bincount(batch, minlength=3)
    assert torch.equal(made.batch_offsets.diff(), counts)


@pytest.mark.parametrize("where", [1e5, -3e6])
def test_map_frames_keep_their_precision(where: float) -> None:
    near = cloud(400, scale=20.0)
    frame = torch.tensor([where, -where, 100.0], dtype=torch.float64)
    points = torch.cat([near, near + frame])
    batch = torch.arange(2).repeat_interleave(400)
    made = point_set_of(points, batch, voxel_size=0.05)
    assert (made.positions - points[made.chosen]).abs().max() < 5e-6
    assert made.points.abs().max() < 150
    # every point lies in its cell, counted from its cloud's corner
    begin = made.cells[:, 1:].double() * 0.05 + made.corners[made.batch_index]
    inside = made.positions - begin
    assert inside.min() > -1e-5
    assert inside.max() < 0.05 + 1e-5


def test_duplicates_are_kept_in_their_order() -> None:
    points = torch.tensor([[1.2, 0, 0], [0.1, 0, 0], [1.2, 0, 0], [-0.1, 0, 0], [1.7, 0, 0]])
    made = point_set_of(points)
    assert made.chosen.tolist() == [3, 1, 0, 2, 4]
    assert made.cells[:, 1].tolist() == [-1, 0, 1, 1, 1]
    assert not made.one_per_cell
    assert point_set_of(points[:2]).one_per_cell


def test_clouds_may_be_empty() -> None:
    none = point_set_of(torch.zeros(0, 3), batch_size=2)
    assert (none.rows, none.batch_size) == (0, 2)
    assert none.batch_offsets.tolist() == [0, 0, 0]
    coarse = none.strided(Kernel.of(2, 2))
    assert (coarse.rows, coarse.points.shape) == (0, (0, 3))
    assert point_set_of(torch.zeros(0, 3)).batch_size == 1
    assert point_set_of(torch.zeros(0, 3), thin=0.3).rows == 0
    middle = point_set_of(torch.ones(2, 3), torch.tensor([0, 2]), 4)
    assert middle.batch_offsets.tolist() == [0, 1, 1, 2, 2]
    assert torch.isfinite(middle.origins).all()


def test_collate_equals_a_batch_made_at_once() -> None:
    points, batch = batched(200)
    order = torch.argsort(batch, stable=True)
    points, batch = points[order] + 1e4 * batch[order, None], batch[order]
    whole = point_set_of(points, batch, 3, 0.5)
    parts = PointSet.collate([point_set_of(points[batch == b], voxel_size=0.5) for b in range(3)])
    for name in ("points", "origins", "corners", "keys", "inverse", "chosen"):
        assert torch.equal(getattr(parts, name), getattr(whole, name)), name
    assert parts.batch_size == 3
    thinned = [point_set_of(points[batch == b], voxel_size=0.5, thin=0.9) for b in range(3)]
    both = PointSet.collate(thinned)
    whole = point_set_of(points, batch, 3, 0.5, thin=0.9)
    assert torch.equal(both.keys, whole.keys)
    assert torch.equal(both.inverse, whole.inverse)
    assert torch.equal(both.chosen, whole.chosen)


def test_points_in_the_frame_of_another_set() -> None:
    points = cloud(100, scale=20.0) + 1e6
    whole, half = point_set_of(points, voxel_size=0.05), point_set_of(points[:50], voxel_size=0.6)
    assert not torch.equal(whole.origins, half.origins)
    moved = half.points_about(whole).double() + whole.origins
    assert (moved - half.positions).abs().max() < 1e-4
    assert whole.points_about(whole) is whole.points

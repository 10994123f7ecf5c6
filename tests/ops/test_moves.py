"""Features between points, sites and levels: each move is a matrix that a loop writes down."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import pcnn
from pcnn.geometry import Kernel, VoxelGrid, quantize
from pcnn.geometry.kernel_slots import Triple
from pcnn.models.minkunet import LevelLink
from pcnn.ops import devoxelize
from tests.clouds import batched, cloud
from tests.tolerance import RELATIVE_RMS, relative_rms
from tests.waits import nothing_waits

SIZE = (0.7, 0.5, 1.0)
Entry = tuple[int, int, float]  # row of the result, row of the input, share


@dataclass(frozen=True)
class Scene:
    """Voxels of three clouds, the last one empty, a level of them, and points from elsewhere."""

    fine: VoxelGrid
    grid: VoxelGrid
    points: Tensor
    batch: Tensor

    @classmethod
    def of(cls, n: int, stride: int | Triple, device: str = "cpu") -> Scene:
        points, batch = batched(n, 2)
        fine = quantize(points, batch, voxel_size=SIZE, batch_size=3).to(device)
        clouds = torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(n))
        others = cloud(40, seed=7, scale=1.5)
        return cls(
            fine, fine.strided(Kernel.of(stride, stride)), others.to(device), clouds.to(device)
        )

    @cached_property
    def cells(self) -> Tensor:
        """Cells of the level-0 voxels that hold the points, on the level's lattice."""
        points = self.points.double()
        cells = (points / points.new_tensor(SIZE)).floor()
        stride = cells.new_tensor(self.grid.tensor_stride)
        return (cells.div(stride).floor() * stride).long()


def rows_of(grid: VoxelGrid) -> dict[tuple[int, ...], int]:
    return {tuple(site): row for row, site in enumerate(grid.coords.tolist())}


def around(scene: Scene, places: Tensor, batch: Tensor) -> Iterator[Entry]:
    """Shares of the cells whose centres surround places, in cells of the level."""
    rows, stride = rows_of(scene.grid), scene.grid.tensor_stride
    for number, (place, owner) in enumerate(zip(places.tolist(), batch.tolist(), strict=True)):
        shares = {}
        for corner in itertools.product((0, 1), repeat=3):
            low = [int((p - 0.5) // 1) for p in place]
            parts = [p - 0.5 - c for p, c in zip(place, low, strict=True)]
            share = 1.0
            for part, side in zip(parts, corner, strict=True):
                share *= part if side else 1 - part
            near = ((c + d) * s for c, d, s in zip(low, corner, stride, strict=True))
            site = (owner, *near)
            if share > 0 and site in rows:
                shares[rows[site]] = share
        yield from ((number, row, share / sum(shares.values())) for row, share in shares.items())


def trilinear(scene: Scene) -> Iterator[Entry]:
    edges = torch.tensor(SIZE, dtype=torch.float64) * torch.tensor(scene.grid.tensor_stride)
    return around(scene, scene.points.double() / edges, scene.batch)


def linked(scene: Scene) -> Iterator[Entry]:
    """A voxel stands at the centre of its cell there, at the lowest corner here."""
    step = torch.tensor(scene.grid.tensor_stride)
    return around(scene, scene.fine.coords[:, 1:].double() / step + 0.5, scene.fine.coords[:, 0])


def held(scene: Scene) -> Iterator[Entry]:
    """The site of the cell that holds a point."""
    rows = rows_of(scene.grid)
    for number, (owner, cell) in enumerate(zip(scene.batch.tolist(), scene.cells, strict=True)):
        row = rows.get((owner, *cell.tolist()))
        if row is not None:
            yield number, row, 1.0


def gathered(scene: Scene, above: Tensor) -> Iterator[Entry]:
    counts = torch.bincount(above, minlength=scene.grid.rows).tolist()
    yield from ((row, number, 1 / counts[row]) for number, row in enumerate(above.tolist()))


def fine_above(scene: Scene) -> Tensor:
    rows, step = rows_of(scene.grid), torch.tensor(scene.grid.tensor_stride)
    batch, cells = scene.fine.coords.split((1, 3), 1)
    sites = torch.cat([batch, cells - cells.remainder(step)], 1).tolist()
    return torch.tensor([rows[tuple(site)] for site in sites], dtype=torch.int64)


Move = Callable[[Tensor, Scene], Tensor]
#: A move, the rows that it takes, and its matrix.
MOVES: dict[str, tuple[Move, str, Callable[[Scene], Iterator[Entry]]]] = {
    "nearest": (
        lambda x, s: devoxelize(
            pcnn.SparseTensor(x, s.grid),
            s.points,
            s.batch,
            voxel_size=SIZE,
            interpolation="nearest",
        ),
        "grid",
        held,
    ),
    "trilinear": (
        lambda x, s: devoxelize(
            pcnn.SparseTensor(x, s.grid), s.points.double(), s.batch, voxel_size=SIZE
        ),
        "grid",
        trilinear,
    ),
    "lookup": (
        lambda x, s: pcnn.lookup(pcnn.SparseTensor(x, s.grid), s.cells, s.batch)[0],
        "grid",
        held,
    ),
    "interpolated": (lambda x, s: LevelLink(s.fine, s.grid).interpolated(x), "grid", linked),
    "coarsened": (
        lambda x, s: LevelLink(s.fine, s.grid).coarsened(x),
        "fine",
        lambda s: gathered(s, fine_above(s)),
    ),
    "at_points": (
        lambda x, s: pcnn.SparseTensor(x, s.grid).at_points(),
        "grid",
        lambda s: ((p, row, 1.0) for p, row in enumerate(s.grid.point_rows().tolist())),
    ),
}


def matrix_of(name: str, scene: Scene, out: int) -> tuple[Tensor, int]:
    _, source, entries = MOVES[name]
    sizes = {
        "grid": scene.grid.rows,
        "fine": scene.fine.rows,
        "points": len(scene.grid.point_rows()),
    }
    matrix = torch.zeros(out, sizes[source], dtype=torch.float64)
    for i, j, share in entries(scene):
        matrix[i, j] = share
    return matrix, sizes[source]


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("stride", [1, 2, (1, 3, 2)], ids=str)
@pytest.mark.parametrize("n", [0, 1, 60])
def test_a_move_is_its_matrix(name: str, stride: int | Triple, n: int) -> None:
    scene = Scene.of(n, stride)
    move, source, _ = MOVES[name]
    rows = {"grid": scene.grid, "fine": scene.fine}.get(source)
    many = n if rows is None else rows.rows
    x = torch.randn(many, 2, dtype=torch.float64, requires_grad=True)
    out = move(x, scene)
    matrix, _ = matrix_of(name, scene, len(out))
    torch.testing.assert_close(out, matrix @ x)
    grad = torch.randn_like(out).requires_grad_()
    (found,) = torch.autograd.grad(out, x, grad, create_graph=True)
    torch.testing.assert_close(found, matrix.t() @ grad)
    if found.grad_fn is not None and len(out):  # linear in the gradient, too
        twice = torch.autograd.grad(found.sum(), grad, allow_unused=True)[0]
        torch.testing.assert_close(twice, matrix @ torch.ones_like(x))
    half = move(x.detach().half(), scene)
    assert half.dtype == torch.float16
    if half.numel():
        assert relative_rms(half, matrix @ x.detach().half().double()) < RELATIVE_RMS[half.dtype]


def test_interpolation_differs_by_the_points_too() -> None:
    scene = Scene.of(30, 2)
    features = torch.randn(scene.grid.rows, 2).double().requires_grad_()
    points = scene.points[:12].double().requires_grad_()

    def run(features: Tensor, points: Tensor) -> Tensor:
        sites = pcnn.SparseTensor(features, scene.grid)
        return devoxelize(sites, points, scene.batch[:12], voxel_size=SIZE)

    assert gradcheck(run, (features, points))
    assert gradgradcheck(run, (features, points))


def test_a_point_on_a_centre_has_that_voxel_alone_and_one_nowhere_none() -> None:
    x = pcnn.from_coordinates(torch.tensor([[0, 0, 0], [1, 0, 0]]), torch.tensor([[2.0], [5.0]]))
    points = torch.tensor([[0.5, 0.5, 0.5], [1.0, 0.5, 0.5], [-0.5, 0.5, 0.5], [torch.nan] * 3])
    found = devoxelize(x, points, voxel_size=1.0)
    assert found.flatten().tolist() == [2, 3.5, 0, 0]


@pytest.mark.gpu
@pytest.mark.parametrize("name", MOVES)
def test_a_device_gives_the_values_of_the_host(name: str) -> None:
    (move, source, _), found, values = MOVES[name], [], None
    for device in ("cpu", "cuda"):
        scene = Scene.of(3000, 2, device)
        rows = {"grid": scene.grid.rows, "fine": scene.fine.rows, "points": 3000}[source]
        values = torch.randn(rows, 4).double() if values is None else values
        x = values.to(device).requires_grad_()
        move(x, scene)  # what is kept with levels is made
        with nothing_waits(device):
            out = move(x, scene)
            (grad,) = torch.autograd.grad(out.square().sum(), x)
        found.append((out.detach().cpu(), grad.cpu()))
    for host_side, device_side in zip(*found, strict=True):
        assert host_side.any()
        torch.testing.assert_close(device_side, host_side)

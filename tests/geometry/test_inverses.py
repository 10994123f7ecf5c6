"""Rows of points on coarser levels."""

import copy
import pickle

import pytest
import torch

import pcnn
from pcnn.geometry import Geometry, Kernel, PointSet, VoxelGrid, point_set_of, quantize
from pcnn.ops.sites import output_sites
from tests.clouds import batched, surface_grid

STEPS = [Kernel.of(2, 2), Kernel.of(3, (1, 3, 2)), Kernel.of(3, 2)]
SIZE = 0.5


def made(kind: str, n: int = 300, clouds: int = 3) -> tuple[Geometry, torch.Tensor]:
    """A geometry and the cell ``[P, 4]`` of every point it was made from."""
    points, batch = batched(n, clouds)
    cells = torch.cat([batch[:, None], torch.floor(points / SIZE).long()], dim=1)
    if kind == "voxels":
        return quantize(points, batch, voxel_size=SIZE, batch_size=clouds), cells
    thin = SIZE if kind == "thinned points" else None
    return point_set_of(points, batch, clouds, SIZE, thin=thin), cells


def levels(root: Geometry) -> list[Geometry]:
    found = [root]
    for kernel in STEPS:
        found.append(output_sites(found[-1], kernel))
    return found


def cells_of(level: Geometry) -> torch.Tensor:
    """``[N, 4]`` cells of every row, in units of the level's own."""
    if isinstance(level, PointSet):
        return level.cells.long()
    cells = level.coords.long()
    cells[:, 1:] //= torch.tensor(level.tensor_stride)
    return cells


def check(level: Geometry, cells: torch.Tensor) -> None:
    cells = cells.clone()
    cells[:, 1:] = cells[:, 1:].div(torch.tensor(level.tensor_stride), rounding_mode="floor")
    rows = level.point_rows()
    assert rows.dtype == torch.int64
    assert torch.equal(cells_of(level)[rows], cells)
    features = torch.arange(level.rows).float()[:, None]
    assert torch.equal(pcnn.SparseTensor(features, level).at_points()[:, 0], rows.float())


@pytest.mark.parametrize("kind", ["voxels", "points", "thinned points"])
def test_every_level_gives_every_point_the_row_of_its_cell(kind: str, where: str) -> None:
    root, cells = made(kind)
    for level in levels(root):
        check(level, cells)
        for other in (pickle.loads(pickle.dumps(level)), copy.copy(level), copy.deepcopy(level)):
            check(other, cells)


@pytest.mark.parametrize("kind", ["voxels", "points"])
def test_batches_do_so_too(kind: str) -> None:
    single = [made(kind, n, 1) for n in (90, 1, 40)]
    joined: Geometry = type(single[0][0]).collate([root for root, _ in single])  # type: ignore
    cells = [
        torch.cat([torch.full((len(own), 1), number), own[:, 1:]], dim=1)
        for number, (_, own) in enumerate(single)
    ]
    for level in levels(joined):
        check(level, torch.cat(cells))


def test_levels_without_a_way_back_are_refused() -> None:
    root, _ = made("voxels")
    assert isinstance(root, VoxelGrid)
    bare = VoxelGrid(root.keys, root.batch_size, root.bound)
    reached = surface_grid(50, downsampling="reached")
    several = surface_grid(50), surface_grid(60)
    unlike = VoxelGrid(several[1].keys, 1, several[1].bound)
    for geometry in (
        bare,
        bare.strided(STEPS[0]),
        reached.strided(STEPS[2]),
        root.strided(STEPS[0]).generated(STEPS[0]),
        VoxelGrid.collate([several[0], unlike]),
        VoxelGrid.collate([one.strided(STEPS[0]) for one in several]),
    ):
        x = pcnn.SparseTensor(torch.zeros(geometry.rows, 2), geometry)
        with pytest.raises(ValueError, match="no inverse that leads back to points"):
            x.at_points()

import pytest
import torch

import pcnn
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.maps import cell_bits as module
from pcnn.ops import sites as ops_sites
from pcnn.ops.sites import output_sites
from tests.clouds import surface_grid

pytestmark = pytest.mark.usefixtures("emulated")

KERNELS = [Kernel.of(2, 2), Kernel.of(3, 2), Kernel.of(3, (1, 2, 3)), Kernel.of(5, 4, 2, 3)]


def bare(grid: VoxelGrid, wrong: bool = False) -> VoxelGrid:
    axes, box = grid.coords[:, 1:].t().tolist(), None  # the smallest one, or less than that
    if grid.rows:
        low, high = ([end(axis) for axis in axes] for end in (min, max))
        box = (*low[:2], low[2] + wrong), tuple(high)
    facts = grid.tensor_stride, grid.downsampling, None, box
    return VoxelGrid(grid.keys, grid.batch_size, grid.bound, *facts)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(
    "sites", ["floor by bitmap", "floor by sort", "floor, wrong box", "reached"]
)
@pytest.mark.parametrize("n", [0, 1, 400])
def test_kernels_make_the_sites_that_torch_makes(
    kernel: Kernel, sites: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sites == "floor by sort":
        monkeypatch.setattr(module, "fitting_words", lambda *_: 0)
    if sites == "floor by bitmap":  # and nothing is sorted
        monkeypatch.setattr(ops_sites, "counted_sites", None)
    wrong, sites = sites == "floor, wrong box", sites.split()[0].strip(",")
    grid = surface_grid(n, batch_size=2, seed=n, downsampling=sites)
    for source in (grid, grid.strided(Kernel.of(2, 2))):
        wanted = bare(source).strided(kernel)
        made = output_sites(bare(source, wrong), kernel)
        assert torch.equal(made.keys, wanted.keys)
        assert (made.tensor_stride, made.bound) == (wanted.tensor_stride, wanted.bound)
        assert (made.inverse is None) == (wanted.inverse is None)
        if made.inverse is not None:
            assert torch.equal(made.inverse, wanted.inverse)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_points_are_named(value: float) -> None:
    points, features = torch.tensor([[0.0, value, 0.0]]), torch.ones(1, 1)
    with pytest.raises(ValueError, match="1 of 1 points are NaN or infinite, the first is 0"):
        pcnn.voxelize(points, features, voxel_size=0.1)

import pytest
import torch
from torch import nn

import pcnn
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.maps import SortedSearch
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C, SparseResNet21
from pcnn.ops import device_plan
from tests.clouds import surface, surface_grid

pytestmark = pytest.mark.usefixtures("emulated")

MODELS = {
    "minkunet42": lambda: MinkUNet42(width=0.125),
    "sparse_resnet21": lambda: SparseResNet21(width=0.25),
    "resunet": lambda: ResUNetBN2C(in_channels=4, width=0.25),
    "resnet18": lambda: ResNet18(width=0.125),
}


def all_maps(root: VoxelGrid) -> list[tuple[VoxelGrid, VoxelGrid, Kernel]]:
    grids = [root]
    for grid in grids:
        grids += grid.levels().values()
    return [
        (source, target, kernel)
        for source in grids
        for target in grids
        for kernel, _ in source.maps_to(target)
    ]


def check(root: VoxelGrid, maps: int) -> None:
    found = all_maps(root)
    assert len(found) == maps
    fresh = VoxelGrid(root.keys, root.batch_size, root.bound, root.tensor_stride, root.downsampling)
    for finer in {source for source, _, _ in found}:
        for (_, down), level in finer.levels().items():
            if down and level.inverse is not None:
                step = torch.tensor((1, *level.tensor_stride))
                coarse = torch.div(finer.coords.long(), step, rounding_mode="floor") * step
                assert torch.equal(level.keys[level.inverse], finer.key_format.pack(coarse))
    for source, target, kernel in found:
        # the sites themselves, from scratch
        for grid in (source, target):
            step = torch.tensor((1, *grid.tensor_stride))
            coarse = torch.div(fresh.coords.long(), step, rounding_mode="floor") * step
            assert torch.equal(grid.keys, torch.unique(grid.key_format.pack(coarse)))
        built = source.cached_map(target, kernel)
        assert built is not None, "not planned"
        truth = SortedSearch().build(source, target, kernel)
        for mine, wanted in ((built, truth), (built.transpose(), truth.transpose())):
            for name in ("table", "masks", "counts", "offsets", "pairs"):
                for a, b in zip(mine.layout(name), wanted.layout(name), strict=True):
                    assert torch.equal(a.long(), b.long()), (name, kernel)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("backward", [False, True])
def test_a_planned_batch_has_the_maps_of_a_plain_one(model: str, backward: bool) -> None:
    net = MODELS[model]()
    planner = pcnn.Planner(net, layouts=("table", "tiles"))
    maps = len(planner.recipe.maps)
    grid = surface_grid(900, batch_size=2)
    check(planner(grid, backward=backward), maps)


@pytest.mark.parametrize("n", [0, 1, 2, 300])
def test_cells_are_quantised_and_planned_at_once(n: int) -> None:
    planner = pcnn.Planner(MODELS["minkunet42"](), layouts=("table", "tiles"))
    clouds = torch.randint(0, 3, (n, 1))
    cells = torch.cat([clouds, surface(n)], 1).to(torch.int32)
    for backward in (False, True):
        grid = planner.voxelize(cells, 3, backward=backward)
        wanted = pcnn.geometry.grid_of_cells(cells[:, 1:], cells[:, 0], 3)
        assert torch.equal(grid.keys, wanted.keys)
        assert torch.equal(grid.inverse, wanted.inverse)
        assert grid.bound == wanted.bound
        check(grid, 9)


def test_the_host_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    read = device_plan.read_report
    monkeypatch.setattr(device_plan, "read_report", lambda r: calls.append(0) or read(r))
    for layouts in (("table", "tiles"), ("pairs",)):
        planner = pcnn.Planner(MODELS["minkunet42"](), layouts=layouts)
        grid = planner(surface_grid(300), backward=True)
        cells = surface_grid(300).coords
        planner.voxelize(cells, backward=True)
        assert len(calls) == 2
        calls.clear()
        assert len(all_maps(grid)) == 9


def test_a_planned_network_computes_what_an_unplanned_one_does() -> None:
    net: nn.Module = MODELS["minkunet42"]().double().eval()
    grid = surface_grid(400, batch_size=2)
    x = torch.randn(grid.rows, 4, dtype=torch.float64)
    planned = VoxelGrid(grid.keys, 2, grid.bound)
    pcnn.plan(net, planned)
    out = net(pcnn.SparseTensor(x, planned)).features
    plain = MinkUNet42(width=0.125, engine="reference").double().eval()
    plain.load_state_dict(net.state_dict())
    wanted = plain(pcnn.SparseTensor(x, grid)).features
    torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-10)


def test_cells_beyond_the_packing_are_named() -> None:
    planner = pcnn.Planner(MODELS["minkunet42"]())
    cells = torch.tensor([[0, 0, 0, 0], [0, 0, 1 << 20, 0]], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"y leaves -131072\.\.131071"):
        planner.voxelize(cells)
    with pytest.raises(ValueError, match=r"plan: .* kernel 42 more"):
        planner.voxelize(torch.tensor([[0, 131030, 0, 0]], dtype=torch.int32))


@pytest.mark.parametrize("backward", [False, True])
def test_a_cloud_that_takes_more_passes_than_the_last_is_sorted_again(backward: bool) -> None:
    planner = pcnn.Planner(MODELS["minkunet42"](), layouts=("table", "tiles"))
    small = surface_grid(50).coords
    wide = small.clone()
    wide[0, 1:] = torch.tensor([-90000, 100000, 70000])
    for cells in (small, wide, small):
        # with backward maps are searched before anybody knows that the sort was cut short
        grid = planner.voxelize(cells, backward=backward)
        assert torch.equal(grid.keys, pcnn.geometry.grid_of_cells(cells[:, 1:]).keys)
        check(grid, 9)
        check(planner(VoxelGrid(grid.keys, 1, grid.bound), backward), 9)

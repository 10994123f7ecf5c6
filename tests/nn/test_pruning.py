import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.geometry import VoxelGrid
from pcnn.nn import Conv3d, ConvTranspose3d, MaxPool3d, PlannedModule, cat, prune, unpool
from tests.clouds import surface_grid


def tensor(n: int = 60, clouds: int = 2, channels: int = 3) -> pcnn.SparseTensor:
    grid = surface_grid(n, batch_size=clouds)
    drawn = torch.randn(grid.rows, channels, generator=torch.Generator().manual_seed(n))
    return pcnn.SparseTensor(drawn.double(), grid)


def mask_of(x: pcnn.SparseTensor, share: float = 0.6, seed: int = 0) -> Tensor:
    return torch.rand(len(x), generator=torch.Generator().manual_seed(seed)) < share


def made_by_hand(x: pcnn.SparseTensor) -> pcnn.SparseTensor:
    """The same sites from their coordinates alone, of tensor stride 1."""
    coords = x.coords
    return pcnn.from_coordinates(coords[:, 1:], x.features, coords[:, 0], batch_size=x.batch_size)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_sites_of_the_mask_stay_in_order(n: int, share: float) -> None:
    x = tensor(n)
    mask = mask_of(x, share)
    y = prune(x, mask)
    assert torch.equal(y.features, x.features[mask])
    assert torch.equal(y.coords, x.coords[mask])
    assert (y.batch_size, y.tensor_stride) == (x.batch_size, x.tensor_stride)
    assert y.geometry is not x.geometry
    y.geometry.validate()  # type: ignore[attr-defined]


def test_layers_behind_see_the_sites_that_stay() -> None:
    x = tensor()
    y = prune(x, mask_of(x))
    same, down, up = Conv3d(3, 4, 3), Conv3d(4, 5, 3, 2), ConvTranspose3d(5, 2, 2, 2)

    def run(z: pcnn.SparseTensor) -> Tensor:
        fine = same.double()(z)
        return up.double()(MaxPool3d(3, 1)(down.double()(fine)), out=fine.geometry).features

    out, expected = run(y), run(made_by_hand(y))
    torch.testing.assert_close(out, expected)
    grads = [torch.autograd.grad(o.square().sum(), same.weight)[0] for o in (out, expected)]
    torch.testing.assert_close(*grads)


def test_a_coarse_level_that_is_pruned_leads_back_to_the_finer_one() -> None:
    x = tensor()
    down, up = Conv3d(3, 4, 2, 2).double(), ConvTranspose3d(4, 2, 2, 2, bias=False).double()
    coarse = down(x)
    mask = mask_of(coarse)
    few = prune(coarse, mask)
    assert few.tensor_stride == (2, 2, 2)
    # a site without features adds nothing: zeros in its place give the same
    zeroed = coarse * mask[:, None]
    torch.testing.assert_close(
        up(few, out=x.geometry).features, up(zeroed, out=x.geometry).features
    )
    torch.testing.assert_close(
        unpool(few, x.geometry).features, unpool(zeroed, x.geometry).features
    )
    assert cat(x, unpool(few, x.geometry)).channels == 7


def test_gradients_flow_to_the_sites_that_stay() -> None:
    x = tensor(n=12)
    mask = mask_of(x)
    leaf = x.features.clone().requires_grad_()
    conv = Conv3d(3, 2, 3).double()

    def act(features: Tensor) -> Tensor:
        return conv(prune(x.replace(features), mask)).features.square()

    assert torch.autograd.gradcheck(act, leaf)
    assert torch.autograd.gradgradcheck(act, leaf)
    act(leaf).sum().backward()
    assert leaf.grad is not None
    assert (leaf.grad[~mask] == 0).all()
    assert (leaf.grad[mask] != 0).all()


def test_native_points() -> None:
    points = torch.rand(80, 3)
    x = pcnn.native_points(points, torch.randn(80, 2).double(), voxel_size=0.2)
    mask = mask_of(x)
    y = prune(x, mask)
    y.geometry.validate()  # type: ignore[attr-defined]
    chosen = x.geometry.chosen[mask]  # type: ignore[attr-defined]
    kept = chosen.sort().values  # in the order they came
    alone = pcnn.native_points(points[kept], x.at_points()[kept], voxel_size=0.2)
    assert torch.equal(y.geometry.chosen, chosen)  # type: ignore[attr-defined]
    assert torch.equal(y.features, alone.features)
    assert torch.equal(y.geometry.positions, alone.geometry.positions)  # type: ignore[attr-defined]
    conv, down = Conv3d(2, 3, 3).double(), Conv3d(3, 2, 2, 2).double()
    torch.testing.assert_close(conv(y).features, conv(alone).features)
    coarse = down(conv(y))
    assert unpool(coarse, y.geometry).shape == (len(y), 2)


class Pruning(PlannedModule):
    """A network that decides in the middle which sites stay; the part behind plans its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.tail = Conv3d(3, 4, 3), Tail()

    def forward(self, x: pcnn.SparseTensor) -> pcnn.SparseTensor:
        y = self.first(x)
        out: pcnn.SparseTensor = self.tail(prune(y, y.features[:, 0] > 0))
        return out


class Tail(PlannedModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(Conv3d(4, 4, 3), Conv3d(4, 4, 2, 2))

    def forward(self, x: pcnn.SparseTensor) -> pcnn.SparseTensor:
        out: pcnn.SparseTensor = self.net(x)
        return out


def test_a_planned_network_plans_the_sites_in_front_and_its_part_those_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, x = Pruning().double(), tensor()
    net(x)
    recipe = net.planner.recipe
    assert (len(recipe.levels), len(recipe.maps)) == (0, 1)  # not those of sites behind
    assert (len(net.tail.planner.recipe.levels), len(net.tail.planner.recipe.maps)) == (1, 2)
    x = tensor(50)
    out = net(x)
    y = net.first(x)
    alone = net.tail(made_by_hand(prune(y, y.features[:, 0] > 0)))
    torch.testing.assert_close(out.features, alone.features)
    out.features.sum().backward()
    assert net.first.weight.grad is not None


def test_points_of_pruned_sites_are_refused() -> None:
    x = pcnn.voxelize(torch.rand(50, 3), torch.rand(50, 2), voxel_size=0.3)
    y = prune(x, mask_of(x))
    with pytest.raises(ValueError, match=r"no inverse that leads back to points.*prune"):
        y.at_points()


def test_spare_rows_never_stay() -> None:
    full = surface_grid(40)
    spare = torch.full((5,), full.key_format.sentinel)
    count = torch.tensor([full.rows], dtype=torch.int32)
    keys = torch.cat([full.keys, spare])
    grid = VoxelGrid(keys, 1, full.bound, count=count)
    x = pcnn.SparseTensor(torch.randn(len(keys), 2), grid)
    y = prune(x, torch.ones(len(keys), dtype=torch.bool))
    assert torch.equal(y.geometry.keys, full.keys)
    assert y.geometry.count is None

import pytest
import torch
from torch.nn import functional

import pcnn
from pcnn.geometry import VoxelGrid, grid_of_cells
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.ops import ENGINES
from tests.clouds import dense_grid, surface_grid
from tests.tolerance import DENSE

SIDE = 6
#: Engines whose maps device kernels build, emulated on a CPU.
KERNEL_ENGINES = ("torchsparse", "minuet", "spira")
ON_VOXELS = [name for name, engine in ENGINES.items() if engine.serves_geometry("voxel")]
CASES = [
    # kernel size, stride, dilation, groups, padding
    (3, 1, 1, 1, None),
    (3, 1, 1, 2, None),
    (2, 1, 1, 1, None),
    (4, 1, 1, 1, 1),
    (3, 1, 2, 1, None),
    (2, 2, 1, 1, None),
    (3, 2, 1, 1, None),
    (3, 2, 2, 2, 1),
    (3, 3, 1, 1, 0),
    (4, 2, 1, 1, 1),
    (5, 3, 1, 1, None),
    ((1, 2, 3), (1, 2, 1), 1, 2, None),
    ((3, 1, 2), 1, (2, 1, 1), 1, None),
    (1, 2, 1, 1, None),
]


def volume(x: pcnn.SparseTensor, side: int) -> torch.Tensor:
    """Dense [B, C, side, side, side] of a tensor, coordinates divided by the tensor stride."""
    grid = x.geometry
    coords = grid.coords.long()
    step = torch.tensor(grid.tensor_stride)
    b, (i, j, k) = coords[:, 0], (coords[:, 1:] // step).unbind(1)
    out = x.features.new_zeros(grid.batch_size, x.channels, side, side, side)
    out[b, :, i, j, k] = x.features
    return out


def dense_weight(layer: Conv3d | ConvTranspose3d) -> torch.Tensor:
    """[C_out, C_in / groups, k, k, k] as torch.nn.functional.conv3d takes it."""
    weight = layer.weight.view(*layer.kernel.size, *layer.weight.shape[1:])
    return weight.permute(4, 3, 0, 1, 2)


def all_sites(side: list[int], stride: tuple[int, int, int], batch_size: int) -> VoxelGrid:
    """Every site of a dense block at a tensor stride."""
    axes = [torch.arange(n) * s for n, s in zip(side, stride, strict=True)]
    cells = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, 3)
    batch = torch.arange(batch_size).repeat_interleave(len(cells))
    grid = grid_of_cells(cells.repeat(batch_size, 1), batch, batch_size)
    return VoxelGrid(grid.keys, batch_size, grid.bound, stride)


@pytest.mark.parametrize("engine", ON_VOXELS)
@pytest.mark.parametrize(("size", "stride", "dilation", "groups", "padding"), CASES)
def test_a_dense_block_equals_torch(
    size: int,
    stride: int,
    dilation: int,
    groups: int,
    padding: int | None,
    engine: str,
    request: pytest.FixtureRequest,
) -> None:
    if engine in KERNEL_ENGINES:
        request.getfixturevalue("emulated")
    layer = Conv3d(4, 6, size, stride, padding, dilation, groups, engine=engine).double()
    kernel = layer.kernel
    grid = dense_grid(SIDE, batch_size=2)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4, dtype=torch.float64), grid)
    expected = functional.conv3d(
        volume(x, SIDE),
        dense_weight(layer),
        layer.bias,
        kernel.stride,
        kernel.padding,
        kernel.dilation,
        groups,
    )
    sites = all_sites(list(expected.shape[2:]), kernel.stride, 2)
    y = layer(x, sites)  # torch's own output sites, given
    b, (i, j, k) = (
        sites.coords[:, 0].long(),
        (sites.coords[:, 1:] // torch.tensor(kernel.stride)).long().unbind(1),
    )
    assert (y.features - expected[b, :, i, j, k]).abs().max() < DENSE
    # and on the sites of the geometry, where torch has them too
    own = layer(x)
    coords = (own.geometry.coords[:, 1:] // torch.tensor(kernel.stride)).long()
    inside = (coords < torch.tensor(expected.shape[2:])).all(1)
    b, (i, j, k) = own.geometry.coords[inside, 0].long(), coords[inside].unbind(1)
    assert inside.any()
    assert (own.features[inside] - expected[b, :, i, j, k]).abs().max() < DENSE


@pytest.mark.parametrize("engine", ON_VOXELS)
@pytest.mark.parametrize(("size", "stride", "dilation", "groups", "padding"), CASES)
def test_a_transposed_dense_block_equals_torch(
    size: int,
    stride: int,
    dilation: int,
    groups: int,
    padding: int | None,
    engine: str,
    request: pytest.FixtureRequest,
) -> None:
    if engine in KERNEL_ENGINES:
        request.getfixturevalue("emulated")
    layer = ConvTranspose3d(4, 6, size, stride, padding, dilation, groups, engine=engine).double()
    kernel = layer.kernel
    coarse = all_sites([3, 3, 3], kernel.stride, 2)
    x = pcnn.SparseTensor(torch.randn(coarse.rows, 4, dtype=torch.float64), coarse)
    # torch: [C_in, C_out / groups, k, k, k]
    weight = layer.weight.view(*kernel.size, 4 // groups, groups, 6 // groups)
    weight = weight.permute(4, 3, 5, 0, 1, 2).reshape(4, 6 // groups, *kernel.size)
    expected = functional.conv_transpose3d(
        volume(x, 3),
        weight,
        layer.bias,
        kernel.stride,
        kernel.padding,
        groups=groups,
        dilation=kernel.dilation,
    )
    sites = all_sites(list(expected.shape[2:]), (1, 1, 1), 2)
    b, (i, j, k) = sites.coords[:, 0].long(), sites.coords[:, 1:].long().unbind(1)
    y = layer(x, sites)
    assert (y.features - expected[b, :, i, j, k]).abs().max() < DENSE
    generated = layer(x)
    cells = generated.geometry.coords[:, 1:].long()
    inside = ((cells >= 0) & (cells < torch.tensor(expected.shape[2:]))).all(1)
    b, (i, j, k) = generated.geometry.coords[inside, 0].long(), cells[inside].unbind(1)
    assert (generated.features[inside] - expected[b, :, i, j, k]).abs().max() < DENSE


def test_transposed_is_the_adjoint_on_the_earlier_map() -> None:
    grid = surface_grid(300, batch_size=2)
    down = Conv3d(3, 5, 3, 2, bias=False).double()
    up = ConvTranspose3d(5, 3, 3, 2, bias=False).double()
    up.weight.data = down.weight.data.transpose(1, 2).contiguous()
    x = pcnn.SparseTensor(torch.randn(grid.rows, 3, dtype=torch.float64), grid)
    y = down(x)
    g = torch.randn_like(y.features)
    back = up(y.replace(g), x)
    assert back.geometry is grid
    kernels = grid.maps_to(y.geometry)
    assert len(kernels) == 1  # the earlier map, read backwards
    inner = float((y.features * g).sum())
    assert float((back.features * x.features).sum()) == pytest.approx(inner, rel=1e-12)


def test_submanifold_layers_keep_the_sites() -> None:
    grid = surface_grid(100)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 2), grid)
    assert Conv3d(2, 3, 3)(x).geometry is grid
    assert Conv3d(2, 3, 2)(x).geometry is grid


@pytest.mark.parametrize("groups", [1, 2])
def test_pointwise_layers_are_linear(groups: int) -> None:
    grid = surface_grid(50)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)
    layer = Conv3d(4, 6, 1, groups=groups)
    copy = grid_of_cells(grid.coords[:, 1:].long(), None, 1)
    through_the_map = layer(x, copy)
    torch.testing.assert_close(layer(x).features, through_the_map.features)


def test_autocast_reaches_the_layer() -> None:
    grid = surface_grid(100)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)
    layer = Conv3d(4, 6, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.features.dtype == torch.bfloat16
    y.features.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    assert layer(x).features.dtype == torch.float32


@pytest.mark.parametrize("n", [0, 1])
def test_small_clouds_train(n: int) -> None:
    grid = surface_grid(n, batch_size=2)
    layer = Conv3d(2, 3, 3, 2)
    up = ConvTranspose3d(3, 2, 3, 2)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 2), grid)
    up(layer(x), x).features.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": 3}, "must divide"),
        ({"in_channels": 0}, "positive"),
        ({"kernel_size": 0}, "kernel_size"),
        ({"engine": "warp"}, "no engine named 'warp'"),
    ],
)
def test_layers_that_cannot_be_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Conv3d(**{"in_channels": 4, "out_channels": 4, "kernel_size": 3, **arguments})


def test_a_layer_says_what_it_is() -> None:
    text = repr(Conv3d(4, 8, (1, 3, 3), 2, groups=2))
    assert "4, 8, kernel_size=(1, 3, 3), stride=(2, 2, 2)" in text
    assert "engine=auto" in text

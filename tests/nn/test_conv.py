from typing import Any

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
#: The reference in every case, each other engine in four, which take turns.
CHECKED = [
    ("reference", CASES[i]) if engine == "reference" else (engine, CASES[(4 * number + i) % 14])
    for number, engine in enumerate(ON_VOXELS)
    for i in range(14 if engine == "reference" else 4)
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


def picked(outputs: torch.Tensor, coords: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Features ``[N, C]`` of a dense result at the sites ``[N, 4]``."""
    i, j, k = (coords[:, 1:] // torch.tensor(stride)).long().unbind(1)
    return outputs[coords[:, 0].long(), :, i, j, k]


def check(layer: Conv3d | ConvTranspose3d, x: pcnn.SparseTensor, outputs: torch.Tensor) -> None:
    """On torch's own sites, given, and on those of the layer, where torch has them too."""
    side = torch.tensor(outputs.shape[2:])
    stride = (1, 1, 1) if isinstance(layer, ConvTranspose3d) else layer.kernel.stride
    sites = all_sites(side.tolist(), stride, 2)
    y = layer(x, sites)
    assert (y.features - picked(outputs, sites.coords, stride)).abs().max() < DENSE
    own = layer(x)
    cells = own.geometry.coords[:, 1:] // torch.tensor(stride)
    inside = ((cells >= 0) & (cells < side)).all(1)
    assert inside.any()
    wanted = picked(outputs, own.geometry.coords[inside], stride)
    assert (own.features[inside] - wanted).abs().max() < DENSE


@pytest.mark.parametrize(("engine", "case"), CHECKED, ids=str)
def test_dense_blocks_equal_torch(
    engine: str, case: tuple[Any, ...], request: pytest.FixtureRequest
) -> None:
    if engine in KERNEL_ENGINES:
        request.getfixturevalue("emulated")
    size, stride, dilation, groups, padding = case
    settings = size, stride, padding, dilation, groups
    down = Conv3d(4, 6, *settings, engine=engine).double()
    kernel, grid = down.kernel, dense_grid(SIDE, batch_size=2)
    relation = kernel.stride, kernel.padding
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4, dtype=torch.float64), grid)
    weight = down.weight.view(*kernel.size, *down.weight.shape[1:]).permute(4, 3, 0, 1, 2)
    dense = functional.conv3d(
        volume(x, SIDE), weight, down.bias, *relation, kernel.dilation, groups
    )
    check(down, x, dense)

    up = ConvTranspose3d(4, 6, *settings, engine=engine).double()
    coarse = all_sites([3, 3, 3], kernel.stride, 2)
    x = pcnn.SparseTensor(torch.randn(coarse.rows, 4, dtype=torch.float64), coarse)
    # torch: [C_in, C_out / groups, k, k, k]
    weight = up.weight.view(*kernel.size, 4 // groups, groups, 6 // groups)
    weight = weight.permute(4, 3, 5, 0, 1, 2).reshape(4, 6 // groups, *kernel.size)
    how = {"groups": groups, "dilation": kernel.dilation}
    dense = functional.conv_transpose3d(volume(x, 3), weight, up.bias, *relation, **how)
    check(up, x, dense)


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


@pytest.mark.parametrize("groups", [1, 2])
def test_pointwise_layers_are_linear(groups: int) -> None:
    grid = surface_grid(50)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)
    layer = Conv3d(4, 6, 1, groups=groups)
    copy = grid_of_cells(grid.coords[:, 1:].long(), None, 1)
    through_the_map = layer(x, copy)
    torch.testing.assert_close(layer(x).features, through_the_map.features)


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

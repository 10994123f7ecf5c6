"""Tuning on a GPU: blocks are right or refused, and the network gives the same values."""

import pytest
import torch
from torch import nn

import pcnn
from pcnn.dataflows import OutputStationary
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.nn.conv import convolutions
from pcnn.ops.engine import ENGINES
from tests.clouds import surface_grid
from tests.tolerance import relative_rms
from tests.waits import nothing_waits

pytestmark = [pytest.mark.gpu, pytest.mark.long]


def cloud(n: int, channels: int = 4) -> pcnn.SparseTensor:
    grid = surface_grid(n).to("cuda")
    return pcnn.SparseTensor(torch.randn(grid.rows, channels, device="cuda"), grid)


def small_net() -> nn.Module:
    """Few shapes: a kernel is compiled for each candidate and shape."""
    layers = pcnn.nn.Conv3d(16, 32, 3), pcnn.nn.Conv3d(32, 32, 2, 2), pcnn.nn.Conv3d(32, 32, 3)
    return nn.Sequential(*layers).cuda()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_all_neighbours_of_blocks_are_right(dtype: torch.dtype) -> None:
    x = cloud(20_000, 32)
    x = x.replace(x.features.to(dtype))
    layer = pcnn.nn.Conv3d(32, 48, 3).cuda().to(dtype)
    exact = pcnn.nn.Conv3d(32, 48, 3, engine="reference").cuda().double()
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        wanted = exact(x.replace(x.features.double())).features
        for blocks in GemmBlocks(64, 32, 32).neighbours():
            layer.engine = ENGINES["auto"].having(blocks=vars(blocks))
            built = x.geometry.cached_maps()[0]
            chosen = layer.engine.choose(built, x.device)
            assert isinstance(chosen, OutputStationary)
            assert chosen.blocks == blocks
            assert relative_rms(layer(x).features, wanted) < 2e-3


@pytest.mark.parametrize("backward", [False, True])
def test_a_tuned_network_gives_the_same_values(backward: bool) -> None:
    net, x = small_net(), cloud(20_000, 16)
    net(x).features.square().sum().backward()
    before = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    tuned = pcnn.tune(net, [x], samples=1, backward=backward, progress=False)
    assert {one.name for one in tuned} <= set(convolutions(net))
    net(x).features.square().sum().backward()
    for one, parameter in zip(before, net.parameters(), strict=True):
        assert relative_rms(parameter.grad, one) < 1e-3
    with torch.no_grad():
        net(x)
        with nothing_waits():
            net(x)

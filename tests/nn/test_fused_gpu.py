import pytest
import torch
from torch import nn

import pcnn
from pcnn.models.blocks import ConvNorm, Layers, ResidualBlock
from pcnn.nn import Conv3d, cat
from tests.clouds import surface_grid
from tests.nn.fusing import shaken
from tests.tolerance import RELATIVE_RMS, relative_rms
from tests.waits import nothing_waits

pytestmark = [pytest.mark.gpu, pytest.mark.long]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("channels", [16, 48])
def test_a_block_against_float64(channels: int, joined: bool, dtype: torch.dtype) -> None:
    block = shaken(ResidualBlock(16, channels, Layers())).to("cuda", dtype)
    grid = surface_grid(5000).to("cuda")
    features = torch.randn(grid.rows, 16, device="cuda").to(dtype)
    x = pcnn.SparseTensor(features, grid)
    with torch.no_grad():
        parts = [x.replace(part.contiguous()) for part in features.split([12, 4], dim=1)]
        y = block(cat(*parts) if joined else x).features
    exact = shaken(ResidualBlock(16, channels, Layers("reference"))).cuda()
    exact.load_state_dict(block.state_dict())
    expected = exact.double()(x.replace(features.double())).features.detach()
    plain = block(x).features.detach()  # gradients are enabled: one operation after another
    error = relative_rms(y, expected)
    assert y.dtype == dtype
    assert error < 2 * RELATIVE_RMS[dtype]
    assert error <= 1.2 * relative_rms(plain, expected)


@pytest.mark.parametrize("trains", [False, True])
def test_a_layer_is_few_launches(trains: bool) -> None:
    block = shaken(ConvNorm(Conv3d(32, 32, 3, bias=False), nn.BatchNorm1d(32))).cuda()
    block = block.train() if trains else block.half()
    grid = surface_grid(2000).to("cuda")
    features, grad = torch.randn(2, grid.rows, 32, device="cuda")
    features = features.requires_grad_() if trains else features.half()

    def call() -> None:
        with torch.set_grad_enabled(trains):
            y = block(pcnn.SparseTensor(features, grid)).features
        if trains:
            y.backward(grad)

    call()
    torch.cuda.synchronize()
    with torch.profiler.profile() as profile, nothing_waits():
        call()
    torch.cuda.synchronize()
    kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    names = [e.name for e in kernels if not e.name.startswith(("cuda", "Mem"))]
    names = [name for name in names if "Fill" not in name]  # the suite poisons new memory
    if trains:
        names = [name for name in names if "elementwise" not in name]
    # product, statistics and norm; sums and gradient of the norm; gradients of the product
    assert len(names) <= (4 + 3 + 3 if trains else 1), names

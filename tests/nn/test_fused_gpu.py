import pytest
import torch
from torch import nn

import pcnn
from pcnn.models.blocks import ConvNorm
from pcnn.nn import Conv3d
from tests.clouds import surface_grid
from tests.nn.fusing import shaken
from tests.waits import nothing_waits

pytestmark = [pytest.mark.gpu, pytest.mark.long]


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
    # product (tiles are shared in float32), statistics and norm; sums and gradient of the norm;
    # gradients of the product
    assert len(names) <= (5 + 3 + 4 if trains else 1), names

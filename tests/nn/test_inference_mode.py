"""A cloud that was evaluated under `torch.inference_mode` can be trained on."""

import pytest
import torch
from torch import nn

import pcnn
from pcnn.nn import Conv3d, ConvTranspose3d, MaxPool3d
from tests.clouds import surface_grid


class Network(nn.Module):
    """Down by both kinds of layers, and up on the map of the way down."""

    def __init__(self, engine: str) -> None:
        super().__init__()
        self.stem = Conv3d(3, 4, 3, engine=engine)
        self.down = Conv3d(4, 5, 2, 2, engine=engine)
        self.pool = MaxPool3d(2, engine=engine)
        self.up = ConvTranspose3d(5, 2, 2, 2, engine=engine)

    def forward(self, x: pcnn.SparseTensor) -> torch.Tensor:
        stem = self.stem(x)
        down = self.down(stem)
        return self.up(down, stem).features.sum() + self.pool(down).features.sum()


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_what_inference_mode_keeps_serves_training(engine: str) -> None:
    network, grid = Network(engine), surface_grid(200)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 3), grid)
    with torch.inference_mode():
        evaluated = network(x)
    trained = network(x)
    trained.backward()
    torch.testing.assert_close(trained, evaluated)
    # second derivatives too
    features = x.features.clone().requires_grad_()
    value = network(x.replace(features)).square()
    (slope,) = torch.autograd.grad(value, features, create_graph=True)
    slope.square().sum().backward()
    assert features.grad.isfinite().all()

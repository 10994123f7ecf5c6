"""The same training on a GPU and on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from pcnn.models import MinkUNet42
from pcnn.tensor import SparseTensor
from tests.clouds import surface_grid

#: A tensor and the labels ``[N]`` of its rows; 255 counts nowhere.
Batch = tuple[SparseTensor, Tensor]


def loss_curve(
    model: nn.Module,
    batches: Sequence[Batch],
    device: torch.device | str,
    dtype: torch.dtype,
    lr: float = 0.01,
) -> list[float]:
    """Cross-entropy of every step of plain SGD; TF32 stays off for the time of the call."""
    net = copy.deepcopy(model).to(device=device, dtype=dtype).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        losses = []
        for tensor, labels in batches:
            x = SparseTensor(tensor.features.to(dtype), tensor.geometry).to(device)
            logits = net(x).features
            loss = nn.functional.cross_entropy(logits, labels.to(device), ignore_index=255)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32


def largest_difference(first: Sequence[float], second: Sequence[float]) -> float:
    pairs = torch.tensor([first, second], dtype=torch.float64)
    return float((pairs[0] - pairs[1]).abs().max())


#: Largest difference of the loss in 20 steps. float32: order of additions, grown by 20 updates
#: (3.7e-4 on scans, see benchmarks/results/parity-h200.json); float64 leaves round-off alone.
BOUND = {torch.float32: 1e-3, torch.float64: 1e-8}


def batches(count: int, n: int) -> list[Batch]:
    made = []
    for seed in range(count):
        grid = surface_grid(n, batch_size=2, seed=seed)
        coords = grid.coords[:, 1:].double()
        labels = (coords[:, 2].long() + 3).clamp(0, 4)
        made.append(
            (SparseTensor(torch.cat([coords / 10, torch.rand(grid.rows, 1)], 1), grid), labels)
        )
    return made


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", BOUND, ids=str)
def test_losses_of_twenty_steps_agree(dtype: torch.dtype) -> None:
    model = MinkUNet42(out_channels=5, width=0.25, engine="reference")
    # large enough that no level is left with a handful of rows, whose variance amplifies round-off
    data = batches(20, 20_000)
    curves = [loss_curve(model, data, device, dtype, lr=0.005) for device in ("cpu", "cuda")]
    assert curves[0][-1] < curves[0][0]
    assert largest_difference(*curves) < BOUND[dtype]

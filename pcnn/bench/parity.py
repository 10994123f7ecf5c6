"""Training on two devices from the same weights and batches: how far the losses drift apart."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pcnn.tensor import SparseTensor

#: A tensor and the labels ``[N]`` of its rows; 255 counts nowhere.
Batch = tuple[SparseTensor, Tensor]


def loss_curve(
    model: nn.Module,
    batches: Sequence[Batch],
    device: torch.device | str,
    dtype: torch.dtype,
    lr: float = 0.01,
) -> list[float]:
    """Cross-entropy of every step of plain SGD, one step a batch.

    Weights, features and arithmetic are of ``dtype``; TF32 stays off for the time of the call, so
    that a float32 product means the same everywhere.

    Args:
        model: network to logits; it is copied, not changed.
        batches: on any device.
        device: where to train.
        dtype: float32 or float64.
        lr: learning rate.
    """
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
    """Largest absolute difference of two curves of one length; NaN if a loss is NaN."""
    pairs = torch.tensor([first, second], dtype=torch.float64)
    return float((pairs[0] - pairs[1]).abs().max())

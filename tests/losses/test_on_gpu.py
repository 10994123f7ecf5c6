"""Losses on a CUDA device: the same numbers, and no wait of the host."""

from typing import Any

import pytest
import torch
from torch import nn

from pcnn.losses import (
    CrossEntropy,
    HardestContrastive,
    InfoNCE,
    LovaszSoftmax,
    WeightedSum,
    inverse_log_frequency,
)
from tests.losses.pairs import pair_batch, unit_rows
from tests.waits import nothing_waits


@pytest.mark.gpu
@pytest.mark.parametrize("labelled", [True, False])
def test_labels_have_the_same_value_without_waiting_for_the_device(labelled):
    logits = torch.randn(5000, 19, dtype=torch.float64)
    target = torch.randint(0, 19, (5000,))
    target[::3] = 255
    if not labelled:
        target[:] = 255
    weight = inverse_log_frequency(list(range(1, 20)))
    loss = WeightedSum([CrossEntropy(weight), LovaszSoftmax()])
    here = logits.clone().requires_grad_()
    expected = loss(here, target)
    expected.backward()

    loss = loss.cuda()
    there, target = logits.cuda().requires_grad_(), target.cuda()
    loss(there, target).backward()  # libraries and allocations of the first call
    there.grad = None
    with nothing_waits():
        value = loss(there, target)
        value.backward()
    torch.testing.assert_close(value.cpu(), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-9, atol=1e-12)


def on_device(batch: Any) -> Any:
    moved = {
        name: value.cuda() if isinstance(value, torch.Tensor) else value
        for name, value in vars(batch).items()
    }
    return type(batch)(**moved)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", [HardestContrastive(), InfoNCE()], ids=["hardest", "info_nce"])
@pytest.mark.parametrize("radius", [0.6, 0.0], ids=["positives", "none"])
def test_same_value_without_waiting_for_the_device(loss: nn.Module, radius: float) -> None:
    generator = torch.Generator().manual_seed(0)
    sources = [torch.rand(60, 3, generator=generator) * 3 for _ in range(3)]
    batch = pair_batch(sources, [source.flip(0)[:50] + 0.1 for source in sources], radius, 0.4)
    sides = [unit_rows(n, 16, n) for n in (180, 150)]
    expected = loss(*sides, batch)  # all samples are taken: nothing hangs on the generator
    expected.backward()
    there = [side.detach().cuda().requires_grad_() for side in sides]
    moved = on_device(batch)
    loss(*there, moved).backward()  # libraries and allocations of the first call
    for side in there:
        side.grad = None
    with nothing_waits():
        value = loss(*there, moved)
        value.backward()
    torch.testing.assert_close(value.cpu(), expected, rtol=1e-9, atol=1e-12)
    for one, other in zip(there, sides, strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-8, atol=1e-12)


@pytest.mark.gpu
def test_samples_of_a_training_step_are_drawn_without_waiting() -> None:
    generator = torch.Generator().manual_seed(0)
    source = torch.rand(300, 3, generator=generator) * 3
    batch = on_device(pair_batch([source], [source + 0.05], 0.4, 0.3))
    sides = [unit_rows(300, 16, n, torch.float32).detach().cuda() for n in (1, 2)]
    losses = [HardestContrastive(64, 32), InfoNCE(samples=64)]
    for loss in losses:
        loss(*sides, batch)
    with nothing_waits():
        values = [loss(*sides, batch) for loss in losses]
    assert all(float(value) > 0 for value in values)

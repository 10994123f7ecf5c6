"""Losses on a CUDA device: the same numbers, and no wait of the host."""

import pytest
import torch

from pcnn.losses import CrossEntropy, LovaszSoftmax, WeightedSum, inverse_log_frequency
from tests.waits import nothing_waits


@pytest.mark.gpu
@pytest.mark.parametrize("labelled", [True, False])
def test_same_value_without_waiting_for_the_device(labelled):
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

from __future__ import annotations

import time

import pytest
import torch

from pcnn.ops.device_time import device_ms


def test_the_median_of_the_clock_on_a_cpu() -> None:
    pauses = iter([0.2, 0.001, 0.001, 0.03, 0.001])
    ms = device_ms(lambda: time.sleep(next(pauses)), torch.device("cpu"), warmup=1, repeats=4)
    assert 0.9 < ms < 20


@pytest.mark.gpu
def test_the_hosts_time_does_not_count() -> None:
    device = torch.device("cuda")
    x = torch.randn(256, 256, device=device)

    def call() -> torch.Tensor:
        time.sleep(2e-4)
        return x @ x

    assert device_ms(call, device) < 0.1


@pytest.mark.gpu
def test_a_call_that_waits_has_a_time_all_the_same() -> None:
    device = torch.device("cuda")
    x = torch.randn(256, 256, device=device)
    assert 0 < device_ms(lambda: (x @ x).sum().item(), device, repeats=3) < 50

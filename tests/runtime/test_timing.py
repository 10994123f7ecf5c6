from __future__ import annotations

import time

import pytest
import torch

from benchmarks.measured import Repeats, measure, peak_memory_mb, trace
from pcnn.runtime.timing import device_ms

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_a_cpu_trace_names_operators() -> None:
    x = torch.randn(2000)
    names = {name for name, _ in trace(lambda: x.sort().values.sum(), CPU).timeline}
    assert {"aten::sort", "aten::sum"} <= names


@pytest.mark.gpu
def test_launches_waits_and_memory_are_counted() -> None:
    x = torch.randn(1 << 20, device=GPU)
    found = measure(lambda: (x + 1.0) * 2.0, GPU, Repeats(3))  # two kernels, two buffers of 4 MiB
    assert (found["launches"], found["waits"]) == (2, 0)
    assert 0 < found["busy_ms"] <= found["wall_ms"]
    assert found["memory_mb"] == peak_memory_mb(lambda: (x + 1.0) * 2.0, GPU)
    assert found["memory_mb"] == pytest.approx(8.0)
    waiting = measure(lambda: x.sum().item(), GPU, Repeats(3))
    assert "device_ms" not in waiting
    assert waiting["waits"] >= 1


@pytest.mark.gpu
def test_the_time_of_a_kernel_is_its_own() -> None:
    def slow_host() -> None:
        for _ in range(5):
            torch.cuda._sleep(100_000)
            time.sleep(4e-4)

    found = measure(slow_host, GPU, Repeats(5), traced=False)
    assert found["wall_ms"] > 1.9
    assert found["host_ms"] > 2.0
    assert found["device_ms"] < 1.0


@pytest.mark.gpu
def test_the_hosts_time_does_not_count() -> None:
    x = torch.randn(256, 256, device=GPU)

    def call() -> torch.Tensor:
        time.sleep(2e-4)
        return x @ x

    assert device_ms(call, GPU) < 0.1
    assert 0 < device_ms(lambda: (x @ x).sum().item(), GPU, repeats=3) < 50  # it waits

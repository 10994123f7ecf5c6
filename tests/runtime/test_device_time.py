import time

import pytest
import torch

from pcnn.runtime.device_time import (
    convolution_floor_ms,
    device_ms,
    flowing_ms,
    known_bandwidth,
    known_matrix_rate,
)


def test_the_median_of_the_clock_on_a_cpu() -> None:
    pauses = iter([0.2, 0.001, 0.001, 0.03, 0.001])
    ms = device_ms(lambda: time.sleep(next(pauses)), torch.device("cpu"), warmup=1, repeats=4)
    assert 0.9 < ms < 20


def test_a_call_among_others_takes_the_median_of_the_rounds() -> None:
    pauses = iter([0.2, *[0.002] * 3, *[0.002] * 3, *[0.03] * 3, *[0.002] * 3])
    call = lambda: time.sleep(next(pauses))  # noqa: E731
    assert 1.9 < flowing_ms(call, torch.device("cpu"), warmup=1, repeats=3) < 20


@pytest.mark.gpu
def test_the_hosts_time_does_not_count() -> None:
    device = torch.device("cuda")
    x = torch.randn(256, 256, device=device)

    def call() -> torch.Tensor:
        time.sleep(2e-4)
        return x @ x

    assert device_ms(call, device) < 0.1
    assert flowing_ms(call, device) > 0.2


@pytest.mark.gpu
def test_a_call_that_waits_has_a_time_all_the_same() -> None:
    device = torch.device("cuda")
    x = torch.randn(256, 256, device=device)
    assert 0 < device_ms(lambda: (x @ x).sum().item(), device, repeats=3) < 50


def test_rates_are_known_by_the_name_of_the_device() -> None:
    assert known_bandwidth("NVIDIA H200") == 4.2e12
    assert known_bandwidth("NVIDIA H100 80GB HBM3") == 3.0e12
    assert known_bandwidth("cpu (Some Model)") is None
    assert known_matrix_rate("NVIDIA H200", "float16") == 7.2e14
    assert known_matrix_rate("NVIDIA H200", "float64") is None


def test_the_floor_is_the_longer_of_arithmetic_and_traffic() -> None:
    # 284141 triplets of 64 x 64 channels in half precision: moving the features takes longer
    moved = 2 * (2 * 94289 * 64 + 27 * 64 * 64)
    floor = convolution_floor_ms("NVIDIA H200", "float16", 284141 * 64 * 64, moved)
    assert floor == pytest.approx(moved / 4.2e12 * 1e3)
    assert floor == pytest.approx(0.0058, abs=2e-5)
    dense = convolution_floor_ms("NVIDIA H200", "float16", 10**12, moved)
    assert dense == pytest.approx(2e12 / 7.2e14 * 1e3)
    assert convolution_floor_ms("cpu", "float16", 1, 1) is None

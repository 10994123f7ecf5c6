"""The order of events behind a spin, on a device of straw whose stream runs in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch

from pcnn.bench.harness import gpu_time, same
from pcnn.ops import device_time

CYCLES_PER_MS = 1e6


class Device:
    """A host and a stream; all times in milliseconds."""

    def __init__(self) -> None:
        self.host, self.stream, self.log = 0.0, 0.0, []

    def enqueue(self, takes: float, host: float = 0.005) -> None:
        self.host += host
        self.stream = max(self.stream, self.host) + takes

    def synchronize(self) -> None:
        self.host = max(self.host, self.stream)

    def event(self, enable_timing: bool) -> Event:
        return Event(self)

    def sleep(self, cycles: int) -> None:
        self.log.append("spin")
        self.enqueue(cycles / CYCLES_PER_MS)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at = device, 0.0

    def record(self) -> None:
        self.device.log.append("event")
        self.device.enqueue(0.0)
        self.at = self.device.stream

    def query(self) -> bool:
        return self.at <= self.device.host

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "_sleep", made.sleep)
    monkeypatch.setattr(device_time.time, "perf_counter", lambda: made.host / 1e3)
    return made


def measured(call: Callable[[], None], **options: object) -> tuple[float, float] | None:
    found = gpu_time(same(call), torch.device("cuda"), repeats=3, budget_s=1e9, **options)
    return None if found is None else (found[0].median, found[1].median)


def test_gaps_between_launches_are_not_measured(device: Device) -> None:
    def call() -> None:
        for _ in range(4):
            device.enqueue(0.01, host=0.1)  # a host ten times slower than its kernels

    gpu_ms, host_ms = measured(call)
    assert gpu_ms == pytest.approx(0.04)
    assert host_ms == pytest.approx(0.4)


def test_a_slow_host_gets_a_longer_spin(device: Device) -> None:
    gpu_ms, host_ms = measured(lambda: device.enqueue(0.01, host=7.0))
    assert gpu_ms == pytest.approx(0.01)
    assert host_ms == pytest.approx(7.0)


def test_a_call_that_waits_is_recognised(device: Device) -> None:
    def call() -> None:
        device.enqueue(0.01)
        device.synchronize()
        device.enqueue(0.01)

    assert measured(call) is None


def test_the_cache_is_flushed_before_the_spin(device: Device) -> None:
    device.log.clear()
    measured(lambda: device.log.append("call"), flush=lambda: device.log.append("flush"), warmup=0)
    calibration = 2 * ["spin"] + ["event"] * 2
    assert sorted(device.log[:4]) == sorted(calibration)
    assert device.log[4:] == 3 * ["flush", "spin", "event", "call", "event"]

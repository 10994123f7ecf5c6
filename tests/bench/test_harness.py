from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from pcnn.bench import environment
from pcnn.bench.environment import GpuState, parse_state, read_state
from pcnn.bench.harness import (
    BehindSpin,
    CacheFlush,
    Measurement,
    Timing,
    cycles_per_ms,
    gpu_time,
    measure,
    peak_memory_mb,
    same,
    wall_time,
    while_ahead,
)
from pcnn.bench.trace import count_sync_warnings, trace
from pcnn.runtime import device_time

CPU = torch.device("cpu")
GPU = torch.device("cuda")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def test_a_timing_summarises_its_repeats() -> None:
    timing = Timing.of([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    assert (timing.median, timing.fastest, timing.p90, timing.repeats) == (5.5, 1.0, 9.0, 10)
    assert Timing.of([2.0]).p90 == 2.0
    with pytest.raises(ValueError, match="no repeats"):
        Timing.of([])


@pytest.mark.parametrize("device", DEVICES)
def test_wall_time_counts_repeats_but_not_the_warm_up(device: str) -> None:
    calls: list[float] = []

    def run() -> None:
        time.sleep(0.05 if len(calls) < 2 else 0.001)
        calls.append(1.0)

    timing = wall_time(same(run), torch.device(device), warmup=2, repeats=5)
    assert len(calls) == 7
    assert timing.repeats == 5
    assert 0.5 <= timing.fastest <= timing.median <= timing.p90
    assert timing.median < 45.0


def test_wall_time_stops_at_its_budget_after_three_repeats() -> None:
    run = same(lambda: time.sleep(0.01))
    assert wall_time(run, CPU, warmup=0, repeats=1000, budget_s=0.0).repeats == 3


def test_what_prepares_a_call_is_not_timed() -> None:
    prepared: list[int] = []

    def calls(index: int) -> Callable[[], None]:
        prepared.append(index)
        time.sleep(0.02)
        return lambda: None

    timing = wall_time(calls, CPU, warmup=1, repeats=3)
    assert timing.p90 < 15.0
    assert prepared == [0, 1, 2, 3], "every repeat has a number of its own"


def test_a_cold_cache_is_flushed_before_every_call() -> None:
    order: list[str] = []
    wall_time(
        same(lambda: order.append("call")),
        CPU,
        warmup=1,
        repeats=2,
        flush=lambda: order.append("flush"),
    )
    assert order == ["flush", "call"] * 3


def test_a_flush_writes_all_of_its_buffer() -> None:
    flush = CacheFlush(CPU, size=4096)
    flush()
    flush()
    assert flush._buffer.unique().tolist() == [2]
    assert flush._buffer.numel() == 1024


def test_a_cpu_measurement_claims_no_gpu_time() -> None:
    measured = measure(same(lambda: torch.ones(3)), CPU, repeats=3)
    columns = measured.columns()
    assert columns["wall_ms"] >= columns["min_ms"] > 0
    assert columns["cache"] == "warm"
    for name in ("gpu_ms", "host_ms", "gpu_busy_ms", "memory_mb", "launches", "syncs"):
        assert columns[name] is None


def test_columns_are_those_of_a_result_row() -> None:
    timing = Timing(0.123456, 0.1, 0.2, 9)
    columns = Measurement(timing, timing, timing, "cold", 1.0, 7, 0.05, 2).columns()
    assert columns == {
        "gpu_ms": 0.1235,
        "wall_ms": 0.1235,
        "host_ms": 0.1235,
        "min_ms": 0.1,
        "p90_ms": 0.2,
        "gpu_busy_ms": 0.05,
        "memory_mb": 1.0,
        "launches": 7,
        "syncs": 2,
        "cache": "cold",
    }


class Host:
    """A host that needs so long to enqueue a call, and what the spins were that it was given."""

    def __init__(self, needs_ms: float, interrupted: tuple[int, ...] = ()) -> None:
        self.needs_ms, self.interrupted, self.spins = needs_ms, interrupted, []

    def once(self, index: int, spin_ms: float) -> BehindSpin:
        self.spins.append(spin_ms)
        ahead = spin_ms > self.needs_ms and index not in self.interrupted
        return BehindSpin(float(index), self.needs_ms, ahead)

    def times(self, **options: float) -> list[float]:
        return [one.gpu_ms for one in while_ahead(self.once, **options)]


def test_an_interrupted_host_is_forgiven() -> None:
    host = Host(needs_ms=0.5, interrupted=(1, 2, 4))
    times = host.times(warmup=0, repeats=4, budget_s=10.0, longest_ms=2.0)
    assert times == [0.0, 3.0, 5.0, 6.0]


def test_a_budget_still_leaves_three_repeats_after_the_warm_up() -> None:
    host = Host(needs_ms=0.5)
    assert host.times(warmup=2, repeats=50, budget_s=0.0) == [2.0, 3.0, 4.0]


@pytest.mark.gpu
def test_gpu_time_leaves_out_launch_gaps() -> None:
    x = torch.randn(1000, device=GPU)

    def slow_host() -> None:
        for _ in range(5):
            x.add_(1.0)
            time.sleep(0.0004)

    gpu, host = gpu_time(same(slow_host), GPU, repeats=5)
    wall = wall_time(same(slow_host), GPU, repeats=5)
    assert wall.median > 1.9  # five sleeps of 0.4 ms, by the device's clock
    assert host.median > 2.0
    assert gpu.median < 0.5


@pytest.mark.gpu
def test_gpu_time_is_that_of_the_kernels() -> None:
    cycles = int(5 * cycles_per_ms(20_000_000))
    gpu, host = gpu_time(same(lambda: torch.cuda._sleep(cycles)), GPU, repeats=5)
    assert gpu.median == pytest.approx(5.0, rel=0.3)
    assert host.median < 1.0


@pytest.mark.gpu
def test_a_call_that_syncs_is_recognised() -> None:
    x = torch.randn(1000, device=GPU)
    measured = measure(same(lambda: x.sum().item()), GPU, repeats=3)
    assert measured.gpu is measured.host is None
    assert measured.syncs
    assert measured.syncs >= 1
    assert measured.wall.median > 0
    hidden = measure(same(torch.cuda.synchronize), GPU, repeats=3)
    assert hidden.gpu is None, "a wait that torch does not warn of"


@pytest.mark.gpu
def test_launches_syncs_and_memory_are_counted() -> None:
    x = torch.randn(1 << 20, device=GPU)

    def run() -> torch.Tensor:
        return (x + 1.0) * 2.0  # two kernels, two buffers of 4 MiB

    measured = measure(same(run), GPU, repeats=3)
    assert (measured.launches, measured.syncs) == (2, 0)
    assert measured.gpu is not None
    assert 0 < measured.busy_ms <= measured.wall.median
    assert measured.memory_mb == pytest.approx(8.0)
    assert peak_memory_mb(run, GPU) == pytest.approx(8.0)
    assert count_sync_warnings(lambda: x[0].item(), GPU) == 1
    assert trace(lambda: x.cpu(), GPU).syncs == 1


@pytest.mark.gpu
def test_a_cold_cache_is_slower() -> None:
    x = torch.randn(4 << 20, device=GPU)  # 16 MiB: in the L2 once read
    warm = measure(same(lambda: x.sum()), GPU, repeats=20, count=False)
    cold = measure(same(lambda: x.sum()), GPU, repeats=20, cold=True, count=False)
    assert (warm.cache, cold.cache) == ("warm", "cold")
    assert cold.gpu.median > warm.gpu.median


CYCLES_PER_MS = 1e6


class StrawDevice:
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
    def __init__(self, device: StrawDevice) -> None:
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
def device(monkeypatch: pytest.MonkeyPatch) -> StrawDevice:
    made = StrawDevice()
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "_sleep", made.sleep)
    monkeypatch.setattr(device_time.time, "perf_counter", lambda: made.host / 1e3)
    return made


def measured(call: Callable[[], None], **options: object) -> tuple[float, float] | None:
    found = gpu_time(same(call), torch.device("cuda"), repeats=3, budget_s=1e9, **options)
    return None if found is None else (found[0].median, found[1].median)


def test_gaps_between_launches_are_not_measured(device: StrawDevice) -> None:
    def call() -> None:
        for _ in range(4):
            device.enqueue(0.01, host=0.1)  # a host ten times slower than its kernels

    gpu_ms, host_ms = measured(call)
    assert gpu_ms == pytest.approx(0.04)
    assert host_ms == pytest.approx(0.4)


def test_a_slow_host_gets_a_longer_spin(device: StrawDevice) -> None:
    gpu_ms, host_ms = measured(lambda: device.enqueue(0.01, host=7.0))
    assert gpu_ms == pytest.approx(0.01)
    assert host_ms == pytest.approx(7.0)


def test_a_call_that_waits_is_recognised(device: StrawDevice) -> None:
    def call() -> None:
        device.enqueue(0.01)
        device.synchronize()
        device.enqueue(0.01)

    assert measured(call) is None


def test_the_cache_is_flushed_before_the_spin(device: StrawDevice) -> None:
    device.log.clear()
    measured(lambda: device.log.append("call"), flush=lambda: device.log.append("flush"), warmup=0)
    calibration = 2 * ["spin"] + ["event"] * 2
    assert sorted(device.log[:4]) == sorted(calibration)
    assert device.log[4:] == 3 * ["flush", "spin", "event", "call", "event"]


def test_the_answer_of_nvidia_smi_is_read() -> None:
    assert parse_state("1980, 3201, 41, 118.52\n") == GpuState(1980.0, 3201.0, 41.0, 118.52)


def test_what_a_gpu_does_not_tell_is_absent() -> None:
    assert parse_state("345, 3201, [N/A], [Unknown Error]\n") == GpuState(345.0, 3201.0, None, None)


@pytest.mark.parametrize("text", ["", "\n", "No devices were found\n", "1, 2\n"])
def test_other_answers_are_no_state(text: str) -> None:
    assert parse_state(text) is None


def test_a_cpu_has_no_state() -> None:
    assert read_state(torch.device("cpu")) is None


def test_the_device_is_asked_for_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.extend(command)
        return SimpleNamespace(stdout="1, 2, 3, 4\n")

    properties = SimpleNamespace(uuid="8b1f")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(environment.subprocess, "run", run)
    assert read_state(torch.device("cuda:1")) == GpuState(1.0, 2.0, 3.0, 4.0)
    assert "--id=GPU-8b1f" in asked
    assert not any(word.startswith(("-lgc", "-pl", "-pm", "-r")) for word in asked)

    def absent(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(9, "nvidia-smi")

    monkeypatch.setattr(environment.subprocess, "run", absent)
    assert read_state(torch.device("cuda")) is None


@pytest.mark.gpu
def test_a_gpu_tells_its_clocks() -> None:
    state = read_state(torch.device("cuda"))
    assert state is not None
    assert state.sm_mhz

"""How calls are timed: by a clock of the test, on a fake device, and on a GPU."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from pcnn.bench import environment, harness
from pcnn.bench.environment import describe, parse_state, read_state
from pcnn.bench.harness import (
    BehindSpin,
    CacheFlush,
    Repeats,
    Timing,
    cycles_per_ms,
    gpu_time,
    measure,
    same,
    wall_time,
    while_ahead,
)
from pcnn.bench.trace import KernelTime, Trace, count_sync_warnings, trace
from pcnn.runtime import timing

CPU = torch.device("cpu")
GPU = torch.device("cuda")


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def passes(self, milliseconds: float) -> None:
        self.now += 1e-3 * milliseconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(harness, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


def test_a_timing_summarises_its_repeats() -> None:
    timing = Timing.of([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    assert (timing.median, timing.fastest, timing.p90, timing.repeats) == (5.5, 1.0, 9.0, 10)
    assert Timing.of([2.0]).p90 == 2.0
    many = Timing.of([float(number) for number in range(200, 0, -1)])
    assert (many.p90, many.p95, many.p99) == (180.0, 190.0, 198.0)
    assert "p99_ms" not in many.columns()
    assert many.columns(tails=True)["p99_ms"] == 198.0
    with pytest.raises(ValueError, match="no repeats"):
        Timing.of([])


def test_wall_time_is_that_of_the_calls_after_the_warm_up(clock: Clock) -> None:
    numbers: list[int] = []

    def calls(index: int) -> Callable[[], None]:
        numbers.append(index)
        clock.passes(20.0)  # preparing is not timed
        return lambda: clock.passes(index if index > 1 else 50.0)

    def flush() -> None:
        clock.passes(7.0)
        order.append("flush")

    order: list[str] = []
    timing = wall_time(calls, CPU, Repeats(5, 2), flush)
    found = (timing.fastest, timing.median, timing.p90, timing.repeats)
    assert found == pytest.approx((2.0, 4.0, 6.0, 5))
    assert numbers == list(range(7)), "every repeat has a number of its own"
    wall_time(same(lambda: order.append("call")), CPU, Repeats(1, 0), flush)
    assert order == 7 * ["flush"] + ["flush", "call"]


def test_calls_back_to_back_share_one_wait(clock: Clock) -> None:
    numbers: list[int] = []

    def calls(index: int) -> Callable[[], None]:
        numbers.append(index)
        return lambda: clock.passes(10.0 if index else 30.0)

    taken = harness.back_to_back_ms(calls, CPU, Repeats(4, 2, budget_s=1.0))
    assert taken == pytest.approx((30.0 + 3 * 10.0) / 4)
    assert numbers == [0, 1, *range(3), *3 * [*range(4)]]
    few = harness.back_to_back_ms(calls, CPU, Repeats(100, 0, budget_s=0.27))
    assert few == pytest.approx((30.0 + 2 * 10.0) / 3), "three rounds within the budget"


def test_a_budget_ends_the_warm_up_and_leaves_three_repeats(clock: Clock) -> None:
    calls: list[int] = []

    def run() -> None:
        calls.append(1)
        clock.passes(10.0)

    assert wall_time(same(run), CPU, Repeats(1000, 5, 0.0)).repeats == 3
    assert len(calls) == 1 + 3
    assert wall_time(same(run), CPU, Repeats(1000, 0, 0.055)).repeats == 6


def test_a_cpu_tells_its_wall_time_alone(clock: Clock) -> None:
    found = measure(same(lambda: clock.passes(1.23456)), CPU, Repeats(3))
    times = dict.fromkeys(("wall_ms", "min_ms", "p90_ms"), 1.2346)
    assert found == {**times, "cache": "warm"}


def test_a_flush_writes_all_of_its_buffer() -> None:
    flush = CacheFlush(CPU, size=4096)
    flush()
    flush()
    assert flush._buffer.unique().tolist() == [2]
    assert flush._buffer.numel() == 1024


@pytest.mark.parametrize(
    ("interrupted", "often", "times"),
    [
        ((1, 2, 4), Repeats(4, 0), [0.0, 3.0, 5.0, 6.0]),  # forgiven
        ((), Repeats(50, 2, 0.0), [2.0, 3.0, 4.0]),  # three after the warm-up, over its budget
        (range(99), Repeats(4, 0), []),  # behind the longest spin: it waits for the device
    ],
)
def test_repeats_count_in_which_the_host_is_ahead(
    interrupted: tuple[int, ...], often: Repeats, times: list[float]
) -> None:
    spins: list[float] = []

    def once(index: int, spin_ms: float) -> BehindSpin:
        spins.append(spin_ms)
        return BehindSpin(float(index), 0.5, index not in interrupted)

    assert [one.gpu_ms for one in while_ahead(once, often)] == times
    assert max(spins) <= harness.LONGEST_MS
    if not times:
        assert spins == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0]


@pytest.mark.gpu
def test_gpu_time_leaves_out_launch_gaps() -> None:
    x = torch.randn(1000, device=GPU)

    def slow_host() -> None:
        for _ in range(5):
            x.add_(1.0)
            time.sleep(0.0004)

    gpu, host = gpu_time(same(slow_host), GPU, Repeats(5))
    wall = wall_time(same(slow_host), GPU, Repeats(5))
    assert wall.median > 1.9  # five sleeps of 0.4 ms, by the device's clock
    assert host.median > 2.0
    assert gpu.median < 0.5


@pytest.mark.gpu
def test_gpu_time_is_that_of_the_kernels() -> None:
    cycles = int(5 * cycles_per_ms(20_000_000))
    gpu, host = gpu_time(same(lambda: torch.cuda._sleep(cycles)), GPU, Repeats(5))
    assert gpu.median == pytest.approx(5.0, rel=0.3)
    assert host.median < 1.0


@pytest.mark.gpu
def test_a_call_that_syncs_is_recognised() -> None:
    x = torch.randn(1000, device=GPU)
    measured = measure(same(lambda: x.sum().item()), GPU, Repeats(3))
    assert not {"gpu_ms", "host_ms"} & set(measured)
    assert measured["syncs"] >= 1
    hidden = measure(same(torch.cuda.synchronize), GPU, Repeats(3))
    assert "gpu_ms" not in hidden, "a wait that torch does not warn of"


@pytest.mark.gpu
def test_launches_syncs_and_memory_are_counted() -> None:
    x = torch.randn(1 << 20, device=GPU)

    def run() -> torch.Tensor:
        return (x + 1.0) * 2.0  # two kernels, two buffers of 4 MiB

    measured = measure(same(run), GPU, Repeats(3))
    assert (measured["launches"], measured["syncs"]) == (2, 0)
    assert measured["gpu_ms"] > 0
    assert 0 < measured["gpu_busy_ms"] <= measured["wall_ms"]
    assert measured["memory_mb"] == pytest.approx(8.0)
    assert count_sync_warnings(lambda: x[0].item(), GPU) == 1
    assert trace(lambda: x.cpu(), GPU).syncs == 1


@pytest.mark.gpu
def test_a_cold_cache_is_slower() -> None:
    x = torch.randn(4 << 20, device=GPU)  # 16 MiB: in the L2 once read
    found: dict[bool, list[float]] = {False: [], True: []}
    for cold in (False, True) * 3:  # other processes share the device, and its cache
        row = measure(same(lambda: x.sum()), GPU, Repeats(), cold=cold, count=False)
        found[cold].append(row["gpu_ms"])
    assert min(found[True]) > min(found[False])


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
    for module in (timing, harness):
        clock = SimpleNamespace(perf_counter=lambda: made.host / 1e3)
        monkeypatch.setattr(module, "time", clock)
    return made


def behind(call: Callable[[], None]) -> tuple[float, float] | None:
    found = gpu_time(same(call), GPU, Repeats(3, budget_s=1e9))
    return None if found is None else (found[0].median, found[1].median)


def test_gaps_between_launches_are_not_measured(device: StrawDevice) -> None:
    def call() -> None:
        for _ in range(4):
            device.enqueue(0.01, host=0.1)  # a host ten times slower than its kernels

    assert behind(call) == pytest.approx((0.04, 0.4))
    # a slower host gets a longer spin
    assert behind(lambda: device.enqueue(0.01, host=7.0)) == pytest.approx((0.01, 7.0))


def test_a_call_that_waits_is_recognised(device: StrawDevice) -> None:
    def call() -> None:
        device.enqueue(0.01)
        device.synchronize()
        device.enqueue(0.01)

    assert behind(call) is None


def test_the_cache_is_flushed_before_the_spin(device: StrawDevice) -> None:
    call, flush = (lambda word=word: device.log.append(word) for word in ("call", "flush"))
    gpu_time(same(call), GPU, Repeats(3, 0, 1e9), flush)
    calibration = 2 * ["spin"] + ["event"] * 2
    assert sorted(device.log[:4]) == sorted(calibration)
    assert device.log[4:] == 3 * ["flush", "spin", "event", "call", "event"]


def test_a_gpu_tells_all_its_times(device: StrawDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "count_sync_warnings", lambda *_: 1)
    monkeypatch.setattr(harness, "peak_memory_mb", lambda *_: 8.00001)
    seen = Trace((KernelTime("add", 20.0, 1), KernelTime("mul", 30.0, 1)), syncs=2)
    call = same(lambda: device.enqueue(0.02, host=0.5))
    for traced, counted in (
        (seen, {"launches": 2, "syncs": 2, "gpu_busy_ms": 0.05}),
        (Trace(()), {"syncs": 1}),  # no profiler here
    ):
        monkeypatch.setattr(harness, "trace", lambda *_, traced=traced: traced)
        found = measure(call, GPU, Repeats(3, budget_s=1e9))
        times = {name: found.pop(name) for name in ("gpu_ms", "host_ms", "wall_ms", "min_ms")}
        assert (times["gpu_ms"], times["host_ms"]) == (0.02, 0.5)
        assert 0.5 < times["min_ms"] <= times["wall_ms"] <= found.pop("p90_ms")
        assert found == {"cache": "warm", "memory_mb": 8.0, **counted}


def test_the_answer_of_nvidia_smi_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("sm_mhz", "memory_mhz", "temperature_c", "power_w")
    for line, values in (
        ("1980, 3201, 41, 118.52", (1980.0, 3201.0, 41.0, 118.52)),
        ("345, 3201, [N/A], [Unknown Error]", (345.0, 3201.0, None, None)),
    ):
        assert parse_state(line) == dict(zip(names, values, strict=True))
    for line in ("", "No devices were found", "1, 2"):
        assert parse_state(line) is None
    assert read_state(CPU) is None
    asked: list[str] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.extend(command)
        return SimpleNamespace(stdout="1, 2, 3, 4\n5, 6, 7, 8\n")

    def absent(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(9, "nvidia-smi")

    properties = SimpleNamespace(uuid="8b1f")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(environment.subprocess, "run", run)
    assert read_state(torch.device("cuda:1")) == dict(zip(names, (1.0, 2.0, 3.0, 4.0), strict=True))
    assert "--id=GPU-8b1f" in asked
    assert not any(word.startswith(("-lgc", "-pl", "-pm", "-r")) for word in asked)
    monkeypatch.setattr(environment.subprocess, "run", absent)
    assert read_state(GPU) is None
    header = describe(GPU)
    assert (header.device, header.driver) == ("NVIDIA H200", None)
    assert header.revision.startswith("pcnn ")


@pytest.mark.gpu
def test_a_gpu_tells_its_clocks() -> None:
    state = read_state(torch.device("cuda"))
    assert state is not None
    assert state["sm_mhz"]

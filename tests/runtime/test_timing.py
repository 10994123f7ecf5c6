from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from pcnn.runtime import timing
from pcnn.runtime.timing import (
    MARK,
    Repeats,
    Trace,
    device_ms,
    device_times,
    flowing_ms,
    measure,
    peak_memory_mb,
    read_trace,
    trace,
    wall_times,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Straw:
    """A host and a stream; all times in milliseconds."""

    def __init__(self) -> None:
        self.host, self.stream, self.log = 0.0, 0.0, list[str]()

    def enqueue(self, takes: float, host: float = 0.005) -> None:
        self.host += host
        self.stream = max(self.stream, self.host) + takes

    def synchronize(self, *_: object) -> None:
        self.host = max(self.host, self.stream)

    def event(self, enable_timing: bool) -> Event:
        return Event(self)

    def sleep(self, cycles: int) -> None:
        self.log.append("spin")
        self.enqueue(cycles / 2e6)


class Event:
    def __init__(self, device: Straw) -> None:
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
def straw(monkeypatch: pytest.MonkeyPatch) -> Straw:
    made = Straw()
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "_sleep", made.sleep)
    clock = SimpleNamespace(perf_counter=lambda: made.host / 1e3)
    monkeypatch.setattr(timing, "time", clock)
    return made


@pytest.mark.parametrize(("takes", "host", "launches"), [(0.01, 0.1, 4), (0.01, 7.0, 1)])
def test_gaps_between_launches_are_not_measured(
    straw: Straw, takes: float, host: float, launches: int
) -> None:
    def call() -> None:
        for _ in range(launches):
            straw.enqueue(takes, host)

    often = Repeats(3, budget_s=1e9)
    assert (
        device_times(call, GPU, often) == [pytest.approx((launches * takes, launches * host))] * 3
    )
    assert device_ms(call, GPU) == pytest.approx(launches * takes)
    assert min(wall_times(call, GPU, often)) >= launches * host, "the host is slower"


def test_a_call_that_waits_has_no_time_behind_a_spin(straw: Straw) -> None:
    def call() -> None:
        straw.enqueue(0.5)
        straw.synchronize()
        straw.enqueue(0.5)

    assert device_times(call, GPU, Repeats(3, budget_s=1e9)) is None
    assert device_ms(call, GPU, repeats=3) == pytest.approx(1.0, abs=0.1)


def test_what_comes_before_a_call_is_not_timed(straw: Straw) -> None:
    call, before = (lambda word=word: straw.log.append(word) for word in ("call", "before"))
    device_times(call, GPU, Repeats(3, 0, 1e9), before)
    assert straw.log == 3 * ["before", "spin", "event", "call", "event"]
    passes = lambda: straw.enqueue(9.0)  # noqa: E731
    assert max(wall_times(lambda: None, GPU, Repeats(3, 1), passes)) < 0.1


def test_a_gpu_tells_all_its_times(straw: Straw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "peak_memory_mb", lambda *_: 8.0)
    times = {"wall_ms", "min_ms", "p90_ms", "device_ms", "host_ms", "memory_mb"}
    for seen, counted in (
        (Trace((("add", 20.0), ("mul", 30.0)), 2), {"launches": 2, "waits": 2, "busy_ms": 0.05}),
        (Trace(()), {}),  # no profiler here
    ):
        monkeypatch.setattr(timing, "trace", lambda *_, seen=seen: seen)
        found = measure(lambda: straw.enqueue(0.02, 0.5), GPU, Repeats(3, budget_s=1e9))
        assert (found["device_ms"], found["host_ms"]) == pytest.approx((0.02, 0.5))
        assert 0.5 < found["min_ms"] <= found["wall_ms"] <= found["p90_ms"]
        assert {name: found[name] for name in found.keys() - times} == counted


@pytest.mark.parametrize(
    ("often", "calls", "counted"),
    [
        (Repeats(5, 2), 7, 5),
        (Repeats(1000, 5, 0.0), 1 + 3, 3),  # the budget ends the warm-up and leaves three
        (Repeats(1000, 0, 0.055), 6, 6),
    ],
)
def test_calls_that_count(straw: Straw, often: Repeats, calls: int, counted: int) -> None:
    found = often.run(lambda: straw.enqueue(0.0, 10.0) or straw.host)
    assert len(found) == counted
    assert straw.host == 10.0 * calls
    found = measure(lambda: straw.enqueue(0.0, 1.5), CPU, Repeats(3))
    assert found == pytest.approx(dict.fromkeys(("wall_ms", "min_ms", "p90_ms"), 1.5))


@pytest.mark.parametrize("timed", [device_ms, flowing_ms])
def test_a_cpu_tells_the_median_of_its_clock(straw: Straw, timed: Callable[..., float]) -> None:
    pauses = itertools.chain([200.0], itertools.cycle([1.0, 1.0, 1.0, 30.0]))
    call = lambda: straw.enqueue(0.0, next(pauses))  # noqa: E731
    assert timed(call, CPU, warmup=1, repeats=4) == pytest.approx(
        1.0 if timed is device_ms else 8.25
    )


def event(category: str, name: str, start: float, duration: float) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration}


EVENTS = [
    event("user_annotation", MARK, 100.0, 50.0),
    event("gpu_user_annotation", MARK, 120.0, 50.0),
    event("cuda_runtime", "cudaLaunchKernel", 101.0, 2.0),
    event("cuda_runtime", "cudaStreamSynchronize", 110.0, 20.0),
    event("cuda_runtime", "cudaMemcpyAsync", 131.0, 1.0),
    event("cuda_runtime", "cudaMemcpy", 133.0, 5.0),
    event("cuda_driver", "cuStreamSynchronize", 140.0, 5.0),
    event("cuda_runtime", "cudaDeviceSynchronize", 155.0, 5.0),  # the profiler's own, after
    event("kernel", "search", 124.0, 4.0),
    event("kernel", "sort", 130.0, 9.5),
    event("kernel", "search", 120.0, 3.0),
    event("gpu_memset", "Memset", 144.0, 1.0),
    event("cpu_op", "aten::add", 101.0, 9.0),
    {"ph": "M", "name": "process_name", "args": {"name": "python"}},
]


def test_launches_and_waits_of_all_libraries_are_counted() -> None:
    seen = read_trace(EVENTS)
    assert [name for name, _ in seen.timeline] == ["search", "search", "sort", "Memset"]
    assert (seen.launches, seen.busy_ms) == (4, 0.0175)
    assert seen.waits == 3, "a stream, a copy without Async in its name, a stream of the driver"
    assert read_trace([]) == Trace(())


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
    assert flowing_ms(call, GPU) > 0.2
    assert 0 < device_ms(lambda: (x @ x).sum().item(), GPU, repeats=3) < 50  # it waits

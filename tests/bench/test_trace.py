from __future__ import annotations

import torch

from pcnn.bench.trace import MARK, read_trace, trace


def event(category: str, name: str, start: float, duration: float) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration}


EVENTS = [
    event("user_annotation", MARK, 100.0, 50.0),
    event("gpu_user_annotation", MARK, 120.0, 50.0),
    event("cuda_runtime", "cudaLaunchKernel", 101.0, 2.0),
    event("cuda_driver", "cuLaunchKernelEx", 104.0, 2.0),
    event("cuda_runtime", "cudaStreamSynchronize", 110.0, 20.0),
    event("cuda_runtime", "cudaMemcpyAsync", 131.0, 1.0),
    event("cuda_runtime", "cudaMemcpy", 133.0, 5.0),
    event("cuda_driver", "cuStreamSynchronize", 140.0, 5.0),
    event("cuda_runtime", "cudaDeviceSynchronize", 155.0, 5.0),  # the profiler's own, after
    event("kernel", "search", 120.0, 3.0),
    event("kernel", "search", 124.0, 4.0),
    event("kernel", "sort", 130.0, 9.5),
    event("gpu_memcpy", "Memcpy DtoH", 142.0, 1.5),
    event("gpu_memset", "Memset", 144.0, 1.0),
    event("cpu_op", "aten::add", 101.0, 9.0),
    {"ph": "M", "name": "process_name", "args": {"name": "python"}},
    {"ph": "i", "name": "Record Window End", "ts": 170.0},
]


def test_launches_and_waits_of_all_libraries_are_counted() -> None:
    seen = read_trace(EVENTS)
    names = [kernel.name for kernel in seen.timeline]
    assert names == ["search", "search", "sort", "Memcpy DtoH", "Memset"], "as they began"
    assert seen.launches == 5
    assert seen.busy_ms == 0.019
    # waits within the call: a stream, a copy without Async in its name, a stream of the driver
    assert seen.syncs == 3
    seen = read_trace([])
    assert (seen.timeline, seen.launches, seen.busy_ms, seen.syncs) == ((), 0, 0.0, 0)


def test_a_cpu_trace_names_operators() -> None:
    x = torch.randn(2000)
    seen = trace(lambda: x.sort().values.sum(), torch.device("cpu"))
    assert {"aten::sort", "aten::sum"} <= {kernel.name for kernel in seen.timeline}

"""Launching on a GPU: streams, threads, devices, graphs, shared memory."""

import threading
import time
from pathlib import Path

import pytest
import torch

from pcnn.kernels.cuda import module

pytestmark = pytest.mark.gpu

SHARED = """
#include "common.cuh"

// Every block leaves the sum of 0 .. words - 1, by way of dynamic shared memory.
struct SumArguments { i64* out; int words; };

KERNEL(sum, SumArguments, 128) {
    DYNAMIC_SHARED(bytes);
    int* words = (int*)bytes;
    for (int i = threadIdx.x; i < a.words; i += blockDim.x) words[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) {
        i64 sum = 0;
        for (int i = 0; i < a.words; ++i) sum += words[i];
        a.out[blockIdx.x] = sum;
    }
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fill(out: torch.Tensor, value: int, **defines: int) -> None:
    """Write `value` into every element, by csrc/probe.cu; a macro makes it a module of its own."""
    kernels = module("probe.cu", out.device, **defines)
    kernels.launch("fill", -(-len(out) // 256), out=out, n=len(out), value=value)


def ints(n: int, device: str = "cuda") -> torch.Tensor:
    return torch.full((n,), -1, dtype=torch.int32, device=device)


def test_the_current_stream_is_used_and_nothing_waits_for_it() -> None:
    out, copy = ints(1000), ints(1000)
    fill(out, 0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(side):
            torch.cuda._sleep(400_000_000)  # cycles: some 0.2 s
            start = time.perf_counter()
            out.fill_(3)  # what the kernel must come after
            fill(out, 4)
            copy.copy_(out)
        assert time.perf_counter() - start < 0.05
        assert not side.query()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    side.synchronize()
    assert bool((copy == 4).all())


def test_fresh_threads_launch() -> None:
    for device in ["cuda:0", "cuda:1"][: torch.cuda.device_count()]:
        out, current = ints(1000, device), []

        def work(out: torch.Tensor = out, current: list[int] = current) -> None:
            fill(out, 6, FRESH=1)
            current.append(torch.cuda.current_device())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert current == [0]
        assert bool((out == 6).all())


@pytest.mark.parametrize("warm", [True, False])
def test_a_launch_is_captured(warm: bool) -> None:
    out = ints(1000)
    if warm:
        fill(out, 0, CAPTURED=1)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        fill(out, 9, CAPTURED=1 if warm else 2)  # a module never loaded before, when cold
        out.add_(1)
    out.zero_()
    graph.replay()
    assert bool((out == 10).all())


def test_shared_memory_beyond_48_kb(tmp_path: Path) -> None:
    source = tmp_path / "shared.cu"
    source.write_text(SHARED)
    device = torch.device("cuda")
    most = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    kernels = module(str(source), device)
    for size in (1024, most, 2048):
        words = size // 4
        out = torch.zeros(3, dtype=torch.int64, device=device)
        kernels.launch("sum", 3, shared_bytes=size, out=out, words=words)
        assert out.tolist() == [words * (words - 1) // 2] * 3
    with pytest.raises(RuntimeError, match=rf"sum: {most + 4} bytes of shared memory.*CUDA_ERROR"):
        kernels.launch("sum", 3, shared_bytes=most + 4, out=out, words=words)


def test_a_tensor_of_the_host_is_refused_but_page_locked_memory_is_written() -> None:
    kernels = module("probe.cu", torch.device("cuda"), CHECKED=1)
    with pytest.raises(ValueError, match="out"):
        kernels.launch("fill", 1, out=ints(9, "cpu"), n=9, value=1)
    pinned = torch.zeros(9, dtype=torch.int32, pin_memory=True)
    kernels.launch("fill", 1, out=pinned, n=9, value=8)
    torch.cuda.synchronize()
    assert pinned.tolist() == [8] * 9

"""Launches of Triton kernels: written down in place of being made, compiled side by side, handed
to Triton the short way. No GPU."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaLauncher
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction, driver

from pcnn.kernels import triton_launch
from pcnn.kernels.batch_norm import batch_norm, batch_norm_gradients
from pcnn.kernels.batch_statistics import batch_statistics
from pcnn.kernels.conv_spec import RunningStatistics
from pcnn.kernels.outer_products import sum_of_chunks_kernel
from pcnn.kernels.recorded import compile_all, recorded
from pcnn.kernels.triton_launch import started

CPU = torch.device("cpu")
compiles = pytest.mark.skipif(
    not isinstance(sum_of_chunks_kernel, JITFunction), reason="interpreted kernels"
)


@pytest.fixture
def no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton compiles for a Hopper that is not there, into a cache of its own."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(CompiledKernel, "run", True)
    target = GPUTarget("cuda", 90, 32)
    hopper = SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_current_target=lambda: target,
    )
    monkeypatch.setattr(driver, "_active", hopper)


@compiles
@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize("count", [None, torch.ones(1, dtype=torch.int32)], ids=["all", "count"])
def test_variants_compile_side_by_side_into_tritons_cache(
    count: torch.Tensor | None, tmp_path: Path
) -> None:
    """With sizes that are floats; the interpreter accepts more than the compiler does."""
    y, weight = torch.zeros(50, 96).half(), torch.zeros(96)
    statistics = torch.zeros(2, 96)
    skip = None if count is None else y
    running = RunningStatistics(weight, weight, torch.zeros(1, dtype=torch.int64), 0.1)
    with recorded() as record:
        batch_statistics(y, running, 1e-5, count)
        batch_norm(y, statistics, weight, weight, skip, True, count)
        batch_norm_gradients(y, y, skip, statistics, weight, weight, True, count is not None, count)
    assert [type(size) for size in list(record)[1].arguments[6:11]] == [int] * 3 + [float] * 2
    sizes = list(compile_all(record, CPU))
    for one in record:
        one.kernel.device_caches.clear()
    assert len(sizes) == 6
    assert sorted(len(path.read_bytes()) for path in tmp_path.rglob("*.cubin")) == sorted(sizes)


GRID, STREAM, ARGUMENTS = (7, 3, 1), 99, (4096, 8192, 5, 64, True)


def kernel(scratch: int = 0) -> tuple[Any, list[tuple[Any, ...]]]:
    """A compiled kernel whose launches are written down."""
    calls: list[tuple[Any, ...]] = []
    run = object.__new__(CudaLauncher)
    run.launch = lambda *args: calls.append(args)
    run.num_ctas = 1
    run.global_scratch_size, run.profile_scratch_size = scratch, 0
    run.global_scratch_align = run.profile_scratch_align = 1
    run.launch_cooperative_grid, run.launch_pdl = False, True
    return SimpleNamespace(run=run, function=1234, packed_metadata=(4, 1, 512)), calls


@pytest.mark.skipif(triton.__version__ not in triton_launch._KNOWN, reason="another launcher")
def test_the_short_way_hands_over_what_tritons_own_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, calls = kernel()
    start, what = started(compiled)
    assert start is compiled.run.launch
    start(*GRID, STREAM, *what, *ARGUMENTS)
    hooks = None, None, None
    compiled.run(*GRID, STREAM, compiled.function, compiled.packed_metadata, *hooks, *ARGUMENTS)
    assert calls[0] == calls[1]
    compiled, _ = kernel(scratch=128)  # scratch memory, and other versions, take Triton's way
    assert started(compiled) == (compiled.run, (1234, (4, 1, 512), *hooks))
    compiled, _ = kernel()
    monkeypatch.setattr(triton, "__version__", "99.0")
    assert started(compiled)[0] is compiled.run

"""Calls of a launch to Triton, with a fake launcher; no GPU."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")

import triton
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime import JITFunction

from pcnn.kernels import triton_launch
from pcnn.kernels.triton_launch import started

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
def test_the_short_way_hands_over_what_tritons_own_does() -> None:
    compiled, calls = kernel()
    start, what = started(compiled)
    assert start is compiled.run.launch
    start(*GRID, STREAM, *what, *ARGUMENTS)
    hooks = None, None, None
    compiled.run(*GRID, STREAM, compiled.function, compiled.packed_metadata, *hooks, *ARGUMENTS)
    assert calls[0] == calls[1]
    assert len(calls[0]) == 4 + 9 + len(ARGUMENTS)


def test_scratch_memory_and_other_versions_take_tritons_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, _ = kernel(scratch=128)
    start, what = started(compiled)
    assert start is compiled.run
    assert what == (compiled.function, compiled.packed_metadata, None, None, None)
    compiled, _ = kernel()
    monkeypatch.setattr(triton, "__version__", "99.0")
    assert started(compiled)[0] is compiled.run


def test_tensors_that_may_start_anywhere_take_the_usual_variant() -> None:
    parameters = [
        SimpleNamespace(num=number, do_not_specialize_on_alignment=number == 1)
        for number in range(2)
    ]
    found = object.__new__(JITFunction)
    found.params = parameters
    variant = triton_launch.Variant(found, (), 4, 3)
    assert not variant._is_special([4096, 4104, None])
    assert not variant._is_special([4096, None, 8192])
    assert variant._is_special([4104, 4096, None])
    assert variant._is_special([4104, 4104, None])

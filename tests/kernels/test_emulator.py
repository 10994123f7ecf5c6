"""Promises of the emulator of kernels: right results, and an error where threads diverge."""

from pathlib import Path

import pytest
import torch

from tests.kernels import emulator

SOURCE = """
#include "common.cuh"

struct Numbers { const i64* values; i64* sums; };

KERNEL(sums, Numbers, 64) {
    __shared__ long long partial[2];
    long long sum = a.values[blockIdx.x * 64 + threadIdx.x];
    for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) a.sums[blockIdx.x] = partial[0] + partial[1];
}

KERNEL(some_return, Numbers, 64) {
    if (threadIdx.x >= 32) return;  // those that are left meet all the same
    __syncthreads();
    if (threadIdx.x == 0) a.sums[blockIdx.x] = 1;
}

KERNEL(half_a_warp, Numbers, 32) { if (threadIdx.x < 16) __syncwarp(); }

KERNEL(two_collectives, Numbers, 32) {
    if (threadIdx.x < 16) __syncwarp(); else __ballot_sync(~0u, 1);
}

KERNEL(apart, Numbers, 32) { if (threadIdx.x < 16) __syncthreads(); else __syncwarp(); }
"""


@pytest.fixture
def module(tmp_path: Path) -> emulator.EmulatedModule:
    if emulator.COMPILER is None:
        pytest.skip("no C++ compiler to emulate kernels with")
    (tmp_path / "numbers.cu").write_text(SOURCE)
    return emulator.emulated_module(str(tmp_path / "numbers.cu"))


def launch(module, kernel: str, values: torch.Tensor, grid: int) -> list[int]:
    sums = torch.zeros(grid, dtype=torch.int64)
    module.launch(kernel, grid, values=values, sums=sums)
    return [int(value) for value in sums]


@pytest.mark.parametrize("descending", [False, True])
def test_threads_meet(module, monkeypatch: pytest.MonkeyPatch, descending: bool) -> None:
    monkeypatch.setattr(emulator.EmulatedModule, "descending", descending)
    values = torch.randint(-1000, 1000, (5 * 64,))
    assert launch(module, "sums", values, 5) == values.view(5, 64).sum(1).tolist()
    assert launch(module, "some_return", values, 3) == [1, 1, 1]


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("half_a_warp", "a lane returns while others of its warp wait"),
        ("two_collectives", "lanes of a warp meet in different collectives"),
        ("apart", "deadlock in block 0"),
    ],
)
def test_threads_that_go_apart_are_found(module, kernel: str, says: str) -> None:
    values = torch.ones(64, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=says):
        launch(module, kernel, values, 2)
    assert launch(module, "sums", values, 1) == [64]  # and the next launch starts afresh

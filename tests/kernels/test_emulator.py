"""The emulator of kernels tells where threads diverge."""

from pathlib import Path

import pytest
import torch

from tests.kernels import emulator

SOURCE = """
#include "common.cuh"

struct Numbers { i64* sums; };

KERNEL(together, Numbers, 64) {
    if (threadIdx.x >= 32) return;  // those that are left meet all the same
    __syncthreads();
    if (threadIdx.x == 0) a.sums[blockIdx.x] = 32;
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


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("half_a_warp", "a lane returns while others of its warp wait"),
        ("two_collectives", "lanes of a warp meet in different collectives"),
        ("apart", "deadlock in block 0"),
    ],
)
def test_threads_that_go_apart_are_found(module, kernel: str, says: str) -> None:
    sums = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=says):
        module.launch(kernel, 2, sums=sums)
    module.launch("together", 2, sums=sums)  # the next launch starts afresh
    assert sums.tolist() == [32, 32]

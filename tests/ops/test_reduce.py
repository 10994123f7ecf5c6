from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import SortedSearch
from pcnn.ops import reduce, reduce_max, reduce_mean, reduce_sum
from tests.clouds import surface_grid


def make(n: int = 20, kernel: Kernel | None = None) -> KernelMap:
    grid = surface_grid(n, batch_size=2)
    kernel = kernel or Kernel.of(3, 2)
    return SortedSearch().build(grid, grid.strided(kernel), kernel)


def apart() -> KernelMap:
    """Some outputs have no input."""
    return SortedSearch().build(surface_grid(30), surface_grid(30, seed=8), Kernel.of(1))


def groups_of(kernel_map: KernelMap) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(kernel_map.n_out)]
    for i, j in zip(kernel_map.out_index.tolist(), kernel_map.in_index.tolist(), strict=True):
        groups[i].append(j)
    return groups


@pytest.mark.parametrize("entries", [reduce.BLOCK_ENTRIES, 35])  # 35: seven triplets at a time
@pytest.mark.parametrize("build", [make, partial(make, 0), partial(make, 1), apart], ids=range(4))
def test_sum_mean_and_maximum_equal_a_loop(
    build: Callable[[], KernelMap], entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce, "BLOCK_ENTRIES", entries)
    kernel_map = build()
    x = torch.randint(4, (kernel_map.n_in, 5)).double() - 10  # with ties
    x[3:4] = torch.nan
    none = torch.zeros(5, dtype=torch.float64)
    loops = {
        reduce_sum: lambda own: own.sum(0),
        reduce_mean: lambda own: own.mean(0),
        reduce_max: lambda own: own.amax(0),
    }
    for reduced, loop in loops.items():
        wanted = [loop(x[rows]) if rows else none for rows in groups_of(kernel_map)]
        expected = torch.stack(wanted) if wanted else x.new_zeros(0, 5)
        torch.testing.assert_close(reduced(x, kernel_map), expected, equal_nan=True)


def test_derivatives_are_closed() -> None:
    kernel_map = make()
    x = torch.randn(kernel_map.n_in, 2, dtype=torch.float64, requires_grad=True)
    for reduced in (reduce_sum, reduce_mean, reduce_max):
        assert gradcheck(lambda x, reduced=reduced: reduced(x, kernel_map), (x,))
        assert gradgradcheck(lambda x, reduced=reduced: reduced(x, kernel_map).square(), (x,))

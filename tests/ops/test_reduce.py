import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import SortedSearch
from pcnn.ops import reduce, reduce_max, reduce_mean, reduce_sum
from tests.clouds import surface_grid
from tests.tolerance import RELATIVE_RMS, relative_rms


def make(n: int = 20, kernel: Kernel | None = None) -> KernelMap:
    grid = surface_grid(n, batch_size=2)
    kernel = kernel or Kernel.of(3, 2)
    return SortedSearch().build(grid, grid.strided(kernel), kernel)


def groups_of(kernel_map: KernelMap) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(kernel_map.n_out)]
    for i, j in zip(kernel_map.out_index.tolist(), kernel_map.in_index.tolist(), strict=True):
        groups[i].append(j)
    return groups


def test_sum_mean_and_maximum_equal_a_loop() -> None:
    kernel_map = make(200)
    x = torch.randn(kernel_map.n_in, 3, dtype=torch.float64)
    total, mean, top = (f(x, kernel_map) for f in (reduce_sum, reduce_mean, reduce_max))
    for i, rows in enumerate(groups_of(kernel_map)):
        torch.testing.assert_close(total[i], x[rows].sum(0))
        torch.testing.assert_close(mean[i], x[rows].mean(0))
        assert torch.equal(top[i], x[rows].max(0).values)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [3, 100_003])
def test_means_are_as_exact_as_their_dtype(dtype: torch.dtype, rows: int) -> None:
    inputs, offsets = torch.arange(rows, dtype=torch.int32), torch.tensor([0, rows])
    one = KernelMap.from_pairs(inputs, torch.zeros_like(inputs), offsets, rows, 1, False, True)
    x = (torch.rand(rows, 4) + 1).to(dtype).requires_grad_()
    mean = reduce_mean(x, one)
    assert mean.dtype == dtype
    # float32 sums of so many terms one after another
    terms = 100 if dtype == torch.float32 and rows > 3 else 1
    assert relative_rms(mean, x.double().mean(0, keepdim=True)) < terms * RELATIVE_RMS[dtype]
    (grad,) = torch.autograd.grad(mean.sum(), x)
    assert relative_rms(grad, torch.full_like(grad.double(), 1 / rows)) < (
        4e-3 if dtype == torch.float16 and rows > 3 else RELATIVE_RMS[dtype]
    )


def test_outputs_without_inputs_are_zero() -> None:
    grid, other = surface_grid(30), surface_grid(30, seed=8)
    kernel_map = SortedSearch().build(grid, other, Kernel.of(1))
    lonely = torch.tensor([not rows for rows in groups_of(kernel_map)])
    assert lonely.any()
    x = torch.randn(grid.rows, 2) - 10
    for reduced in (reduce_sum, reduce_mean, reduce_max):
        assert (reduced(x, kernel_map)[lonely] == 0).all()


@pytest.mark.parametrize("n", [0, 1])
def test_small_clouds(n: int) -> None:
    kernel_map = make(n)
    x = torch.randn(kernel_map.n_in, 2)
    for reduced in (reduce_sum, reduce_mean, reduce_max):
        assert reduced(x, kernel_map).shape == (kernel_map.n_out, 2)


def test_derivatives_with_weights_are_closed() -> None:
    kernel_map = make()
    x = torch.randn(kernel_map.n_in, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(kernel_map.triplets, dtype=torch.float64, requires_grad=True)

    def weighted(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return reduce_sum(x, kernel_map, weight)

    assert gradcheck(weighted, (x, weight))
    assert gradgradcheck(weighted, (x, weight))
    assert gradcheck(lambda x: reduce_mean(x, kernel_map), (x,))
    assert gradcheck(lambda x: reduce_max(x, kernel_map), (x,))
    assert gradgradcheck(lambda x: reduce_max(x, kernel_map).square(), (x,))


def test_a_maximum_in_blocks_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_map = make(60)
    x = torch.randint(4, (kernel_map.n_in, 5)).double()  # with ties
    x[3] = torch.nan
    whole = reduce_max(x, kernel_map)
    monkeypatch.setattr(reduce, "BLOCK_ENTRIES", 35)  # seven triplets at a time
    torch.testing.assert_close(reduce_max(x, kernel_map), whole, rtol=0, atol=0, equal_nan=True)
    loop = [x[rows].amax(0) for rows in groups_of(kernel_map)]
    torch.testing.assert_close(whole, torch.stack(loop), rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("emulated")
def test_tables_are_pooled_where_pairs_are_not_counted() -> None:
    grid = surface_grid(150, 2)
    coarse = grid.strided(Kernel.of(3, 2))
    truth = SortedSearch().build(grid, coarse, Kernel.of(3, 2))
    (table,) = truth.layout("table")
    spare = torch.full((5, 27), -1, dtype=torch.int32)
    counts = (torch.tensor([grid.rows]).int(), torch.tensor([coarse.rows]).int())
    fixed = KernelMap.from_table(torch.cat([table, spare]), grid.rows, row_counts=counts)
    x = torch.randn(grid.rows, 7)
    x[3, 2] = torch.nan
    for dtype in (torch.float32, torch.float16):
        values = x.to(dtype)
        for reduced in (reduce_sum, reduce_mean, reduce_max):
            found, wanted = reduced(values, fixed), reduced(values, truth)
            assert found.dtype == dtype
            assert not found[coarse.rows :].any()
            torch.testing.assert_close(
                found[: coarse.rows], wanted, rtol=2e-3, atol=1e-5, equal_nan=True
            )
    with pytest.raises(ValueError, match="has no gradient"):
        reduce_max(x.requires_grad_(), fixed)

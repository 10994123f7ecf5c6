"""Gradients of the weights from a table, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.dataflows.outer_products import NEEDS_VVOR_BY_ROW, vvor_by_row  # noqa: E402
from pcnn.geometry import Kernel  # noqa: E402
from pcnn.kernels.outer_products_by_row import (  # noqa: E402
    ByRowTiles,
    default_row_tiles,
    outer_products_by_row,
)
from pcnn.maps import SortedSearch  # noqa: E402
from tests.clouds import surface_grid  # noqa: E402
from tests.kernels.triton.rows import with_turns  # noqa: E402
from tests.tolerance import RELATIVE_RMS, relative_rms  # noqa: E402

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SINGLE = torch.float32


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a launch allocates holds NaN."""
    allocate = torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *args, **kwargs: allocate(*args, **kwargs).fill_(float("nan"))
    )


def tiles(slots: int, chunk: int = 48) -> ByRowTiles:
    return ByRowTiles(16, 16, 16, slots, chunk, 4, 3, cached=slots > 2)


def neighbours(n_out: int, volume: int, n_in: int = 50) -> Tensor:
    """A table with a third of its places filled, and slot 1 empty."""
    table = torch.randint(-2 * n_in, n_in, (n_out, volume), dtype=torch.int32).clamp_min(-1)
    table[:, 1:2] = -1
    return table.to(DEVICE)


def exact(x: Tensor, grad: Tensor, table: Tensor, groups: int = 1) -> Tensor:
    """The same in float64: ``[K, C_in / groups, C_out]``."""
    rows = x.double()[table.long().clamp_min(0)] * (table >= 0)[:, :, None]  # [N, K, C_in]
    a = rows.unflatten(2, (groups, -1))
    b = grad.double().unflatten(1, (groups, -1))
    return torch.einsum("nkgc,ngd->kcgd", a, b).flatten(2)


def random(n_out: int, c_in: int, c_out: int, dtype: torch.dtype = SINGLE) -> tuple[Tensor, Tensor]:
    return torch.randn(50, c_in).to(DEVICE, dtype), torch.randn(n_out, c_out).to(DEVICE, dtype)


@pytest.mark.parametrize(
    ("slots", "volume", "dtype"),
    with_turns((1, 2, 3, 4), (1, 8, 9), turning=(torch.float16, torch.bfloat16, torch.float32)),
)
def test_sums_equal_float64(slots: int, volume: int, dtype: torch.dtype) -> None:
    (x, grad), table = random(70, 20, 10, dtype), neighbours(70, volume)
    out = outer_products_by_row(x, grad, table, 1, dtype, SINGLE, tiles=tiles(slots))
    assert relative_rms(out, exact(x, grad, table)) < RELATIVE_RMS[SINGLE]
    assert (out[1:2] == 0).all()


@pytest.mark.parametrize(
    ("c_in", "c_out", "groups"), [(1, 3, 1), (4, 1, 1), (16, 33, 1), (40, 4, 2), (6, 36, 3)]
)
def test_channels_and_groups(c_in: int, c_out: int, groups: int) -> None:
    (x, grad), table = random(40, c_in, c_out), neighbours(40, 5)
    out = outer_products_by_row(x, grad, table, groups, SINGLE, SINGLE, tiles=tiles(3))
    expected = exact(x, grad, table, groups)
    assert out.shape == expected.shape == (5, c_in // groups, c_out)
    assert relative_rms(out, expected) < RELATIVE_RMS[SINGLE]


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_mirrored_slots(slots: int) -> None:
    (x, grad), table = random(60, 4, 5), neighbours(60, 7)
    run = [
        outer_products_by_row(
            x, grad, table, 1, SINGLE, SINGLE, mirrored=mirrored, tiles=tiles(slots)
        )
        for mirrored in (False, True)
    ]
    assert torch.equal(run[1], run[0].flip(0))


def test_one_chunk_and_the_dtype_of_the_result() -> None:
    (x, grad), table = random(40, 4, 5), neighbours(40, 7)
    out = outer_products_by_row(x, grad, table, 1, torch.float16, torch.float16, tiles=tiles(2, 64))
    assert out.dtype == torch.float16
    expected = exact(x.half(), grad.half(), table)
    assert relative_rms(out, expected) < RELATIVE_RMS[torch.float16]


@pytest.mark.parametrize("kernel", [Kernel.of(3), Kernel.of(2, 2)], ids=["K3", "even"])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_layouts_of_a_map_serve(kernel: Kernel, n: int) -> None:
    grid = surface_grid(n, batch_size=2)
    kernel_map = SortedSearch().build(grid, grid.strided(kernel), kernel)
    lists = [tensor.to(DEVICE) for name in NEEDS_VVOR_BY_ROW for tensor in kernel_map.layout(name)]
    x = torch.randn(kernel_map.n_in, 5).to(DEVICE)
    grad = torch.randn(kernel_map.n_out, 6).to(DEVICE)
    out = vvor_by_row(x, grad, lists, 1, SINGLE, SINGLE)
    if n == 0:
        assert out.shape == (kernel_map.volume, 5, 6)
        assert (out == 0).all()
    else:
        assert relative_rms(out, exact(x, grad, lists[0])) < RELATIVE_RMS[SINGLE]


def test_float64_names_the_dataflow_that_serves_it() -> None:
    x, grad = random(40, 3, 4, torch.float64)
    with pytest.raises(ValueError, match="reference"):
        outer_products_by_row(x, grad, neighbours(40, 3), 1, torch.float64, torch.float64)


def test_partial_sums_of_the_default_cut_are_bounded() -> None:
    for volume in (8, 27, 125):
        for c in (1, 16, 48, 64, 128, 256, 512):
            for rows in (1, 1 << 17, 1 << 24):
                cut = default_row_tiles(rows, volume, c, c)
                size = 4 * volume * c * c
                assert -(-rows // cut.chunk) * size <= (70 << 20) + size, (volume, c, rows)

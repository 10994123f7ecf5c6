"""Gradients of the weights, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.geometry import Kernel  # noqa: E402
from pcnn.kernels.outer_products import (  # noqa: E402
    OuterProductTiles,
    default_tiles,
    outer_products,
)
from pcnn.maps import SortedSearch  # noqa: E402
from tests.clouds import surface_grid  # noqa: E402
from tests.specs import spec_of  # noqa: E402
from tests.tolerance import RELATIVE_RMS, relative_rms  # noqa: E402

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
TILES = OuterProductTiles(16, 16, 16, 32, 4, 3)
COUNTS = [40, 0, 1, 32, 75, 0]  # an empty slot, one pair, a whole chunk, several chunks


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a launch allocates holds NaN."""
    allocate = torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda *args, **kwargs: allocate(*args, **kwargs).fill_(float("nan"))
    )


def pairs(counts: Sequence[int], rows: int = 50) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of random rows, output rows ascending within a slot."""
    total = sum(counts)
    in_index = torch.randint(0, rows, (total,), dtype=torch.int32)
    parts = [torch.randint(0, rows, (count,)).sort().values for count in counts]
    out_index = torch.cat(parts).to(torch.int32)
    return in_index.to(DEVICE), out_index.to(DEVICE), torch.tensor(counts, device=DEVICE)


def exact(
    x: Tensor, grad: Tensor, in_index: Tensor, out_index: Tensor, counts: Tensor, groups: int = 1
) -> Tensor:
    """The same in float64: ``[K, C_in / groups, C_out]``."""
    slots = torch.arange(len(counts), device=x.device).repeat_interleave(counts)
    a = x.double()[in_index.long()].view(len(slots), groups, -1)
    b = grad.double()[out_index.long()].view(len(slots), groups, -1)
    products = torch.einsum("tgc,tgd->tcgd", a, b).flatten(2)
    return products.new_zeros(len(counts), *products.shape[1:]).index_add_(0, slots, products)


def run(
    x: Tensor,
    grad: Tensor,
    lists: Sequence[Tensor],
    tiles: OuterProductTiles | None = None,
    **settings: Any,
) -> Tensor:
    spec = spec_of(x.dtype, torch.float32)._replace(**settings)
    in_index, out_index, counts = lists
    return outer_products(x, grad, in_index, out_index, counts, spec, tiles)


def random(c_in: int, c_out: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(50, c_in).to(DEVICE, dtype), torch.randn(50, c_out).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_sums_equal_float64(dtype: torch.dtype) -> None:
    (x, grad), lists = random(20, 33, dtype), pairs(COUNTS)
    out = run(x, grad, lists, tiles=TILES)
    assert out.dtype == torch.float32
    assert relative_rms(out, exact(x, grad, *lists)) < RELATIVE_RMS[torch.float32]
    assert (out[[1, 5]] == 0).all()  # slots without pairs


@pytest.mark.parametrize(
    ("c_in", "c_out", "groups"), [(1, 3, 1), (4, 1, 1), (16, 16, 1), (40, 4, 2), (6, 36, 3)]
)
def test_channels_and_groups(c_in: int, c_out: int, groups: int) -> None:
    (x, grad), lists = random(c_in, c_out), pairs(COUNTS)
    out = run(x, grad, lists, groups=groups, tiles=TILES)
    expected = exact(x, grad, *lists, groups)
    assert out.shape == expected.shape == (len(COUNTS), c_in // groups, c_out)
    assert relative_rms(out, expected) < RELATIVE_RMS[torch.float32]


def test_mirrored_slots() -> None:
    (x, grad), lists = random(4, 5), pairs(COUNTS)
    plain = run(x, grad, lists, tiles=TILES)
    mirrored = run(x, grad, lists, tiles=TILES, mirrored=True)
    torch.testing.assert_close(mirrored, plain.flip(0), rtol=0, atol=0)


def test_sums_beyond_float16_do_not_overflow() -> None:
    x = torch.full((50, 2), 300.0, dtype=torch.float16, device=DEVICE)
    lists = pairs([70])
    assert (run(x, x, lists, tiles=TILES) == 70 * 9e4).all()


def test_rows_outside_every_pair_are_not_read() -> None:
    x, grad = random(16, 16)
    x[0], grad[0] = float("inf"), float("nan")
    in_index, out_index, counts = pairs([21, 3])
    in_index, out_index = in_index.clamp_min(1), out_index.clamp_min(1)
    out = run(x, grad, (in_index, out_index, counts), tiles=TILES)
    assert out.isfinite().all()


def test_operands_are_rounded_and_strides_obeyed() -> None:
    x, grad = random(16, 40)
    x, grad = x[:, ::2], grad[:, 8:24]
    lists = pairs([30, 40])
    out = run(x, grad, lists, compute_dtype=torch.float16, out_dtype=torch.float16, tiles=TILES)
    assert out.dtype == torch.float16
    expected = exact(x.half(), grad.half(), *lists)
    assert relative_rms(out, expected) < RELATIVE_RMS[torch.float16]


@pytest.mark.parametrize("kernel", [Kernel.of(3), Kernel.of(2, 2)], ids=["K3", "even"])
def test_layouts_of_a_map_serve(kernel: Kernel) -> None:
    grid = surface_grid(40, batch_size=2)
    kernel_map = SortedSearch().build(grid, grid.strided(kernel), kernel)
    in_index, out_index, _ = kernel_map.layout("pairs")
    lists = [one.to(DEVICE) for one in (in_index, out_index, *kernel_map.layout("counts"))]
    x = torch.randn(kernel_map.n_in, 5).to(DEVICE)
    grad = torch.randn(kernel_map.n_out, 6).to(DEVICE)
    assert relative_rms(run(x, grad, lists), exact(x, grad, *lists)) < RELATIVE_RMS[torch.float32]


@pytest.mark.parametrize("counts", [[], [0], [0, 0, 0]], ids=str)
def test_empty_maps(counts: list[int]) -> None:
    lists = tuple(torch.zeros(0, dtype=torch.int32, device=DEVICE) for _ in range(2))
    x, grad = random(3, 4)
    on_device = torch.tensor(counts, dtype=torch.int64, device=DEVICE)
    out = run(x, grad, (*lists, on_device), out_dtype=torch.float16)
    assert out.shape == (len(counts), 3, 4)
    assert out.dtype == torch.float16
    assert (out == 0).all()


@pytest.mark.parametrize(("c_in", "c_out"), [(3, 4), (40, 70)])
def test_the_default_cut_serves(c_in: int, c_out: int) -> None:
    (x, grad), lists = random(c_in, c_out), pairs([150, 0, 40])
    assert relative_rms(run(x, grad, lists), exact(x, grad, *lists)) < RELATIVE_RMS[torch.float32]


def test_float64_names_the_dataflow_that_serves_it() -> None:
    x, grad = random(3, 4, torch.float64)
    with pytest.raises(ValueError, match="reference"):
        run(x, grad, pairs([3]))


@pytest.mark.parametrize("c", [1, 16, 64, 256, 1024])
@pytest.mark.parametrize(("triplets", "itemsize"), [(1, 2), (1 << 18, 4), (1 << 31, 2)])
def test_partial_sums_of_the_default_cut_are_bounded(c: int, triplets: int, itemsize: int) -> None:
    tiles = default_tiles(triplets, c, c, itemsize=itemsize)
    assert tiles.chunk % tiles.block_pairs == 0
    assert tiles.block_in >= 16
    assert tiles.block_out >= 16
    full = triplets // tiles.chunk  # chunks besides one a slot, which is as large as the result
    assert 4 * full * c * c <= 70 << 20

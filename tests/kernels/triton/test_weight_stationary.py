"""Products by slot and atomics, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.dataflows import Dataflow, Epilogue, Reference  # noqa: E402
from pcnn.dataflows.hybrid import Hybrid  # noqa: E402
from pcnn.dataflows.weight_stationary import WeightStationary  # noqa: E402
from pcnn.geometry import Kernel, KernelMap  # noqa: E402
from pcnn.kernels.product_tiles import ChunkTiles, RowTiles  # noqa: E402
from pcnn.maps import SortedSearch  # noqa: E402
from tests.clouds import surface_grid  # noqa: E402
from tests.kernels.triton.rows import with_turns  # noqa: E402
from tests.specs import SINGLE, spec_of  # noqa: E402
from tests.tolerance import RELATIVE_RMS, relative_rms  # noqa: E402

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SMALL, ROWS = ChunkTiles(64, 32, 32, 32), RowTiles(32, 32, 32)
FLOWS: list[Dataflow] = [
    WeightStationary(tiles=SMALL, central_tiles=ROWS),
    WeightStationary(half=False, tiles=SMALL),
    *(Hybrid(t, tiles=SMALL, dense_tiles=ROWS) for t in (0, 1, 2, 9)),
]
#: bfloat16 is rounded towards zero by the interpreter, so it is checked on a device.
DTYPES = [torch.float32, torch.float16] + [torch.bfloat16] * (DEVICE == "cuda")
flows = pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name[:40])


def make(n: int, kernel: Kernel, transposed: bool = False) -> KernelMap:
    grid = surface_grid(n, batch_size=2).to(DEVICE)
    kernel_map = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    return kernel_map.transpose() if transposed else kernel_map


def multiply(flow: Dataflow, kernel_map: KernelMap, x: Tensor, weight: Tensor, **more: Any) -> Any:
    spec = spec_of(x.dtype)._replace(**more)
    by_kernels = getattr(flow, "by_kernels", flow.forward)
    return by_kernels(x, weight, kernel_map.layouts(flow.needs), kernel_map.n_out, spec)


def exact(kernel_map: KernelMap, x: Tensor, weight: Tensor, **more: Any) -> Tensor:
    """The same in float64, from operands rounded to the compute dtype."""
    dtype = more.pop("compute_dtype", x.dtype)
    more = {key: value.double() if key == "skip" else value for key, value in more.items()}
    double = {"compute_dtype": torch.float64, "out_dtype": torch.float64}
    x, weight = x.to(dtype).double(), weight.to(dtype).double()
    out: Tensor = multiply(Reference(), kernel_map, x, weight, **{**more, **double})
    return out


def check(flow: Dataflow, kernel_map: KernelMap, x: Tensor, weight: Tensor, **more: Any) -> None:
    out = multiply(flow, kernel_map, x, weight, **more)
    wanted = exact(kernel_map, x, weight, **{k: v for k, v in more.items() if k != "out_dtype"})
    assert out.shape == wanted.shape
    assert out.dtype == more.get("out_dtype", x.dtype)
    assert relative_rms(out, wanted) < RELATIVE_RMS[out.dtype]


KERNELS = {"submanifold": Kernel.of(3), "strided": Kernel.of(3, 2), "flat": Kernel.of((3, 1, 2))}


@pytest.mark.parametrize(
    ("flow", "kernel", "transposed"), with_turns(FLOWS, KERNELS, turning=(False, True))
)
def test_any_map_and_any_channels(flow: Dataflow, kernel: str, transposed: bool) -> None:
    kernel_map = make(24, KERNELS[kernel], transposed)
    for c_in, c_out in ((1, 3), (33, 40)):
        x = torch.randn(kernel_map.n_in, c_in, device=DEVICE)
        check(flow, kernel_map, x, torch.randn(kernel_map.volume, c_in, c_out, device=DEVICE))


@flows
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(flow: Dataflow, dtype: torch.dtype) -> None:
    kernel_map = make(20, Kernel.of(3))
    x = torch.randn(kernel_map.n_in, 20, device=DEVICE)
    weight = torch.randn(27, 20, 24, device=DEVICE)
    check(flow, kernel_map, x.to(dtype), weight.to(dtype))
    check(flow, kernel_map, x.to(dtype), weight, compute_dtype=dtype, out_dtype=torch.float32)


@pytest.mark.parametrize(
    ("flow", "size", "how"),
    with_turns(FLOWS, (3, 2), turning=((1, False), (2, True), (1, True), (2, False))),
)
def test_transposed_weights_mirrored_slots_and_groups(
    flow: Dataflow, size: int, how: tuple[int, bool]
) -> None:
    kernel_map = make(20, Kernel.of(size, 1 if size == 3 else 2))
    groups, mirrored = how
    weight = torch.randn(kernel_map.volume, 5, 12, device=DEVICE)
    forward = torch.randn(kernel_map.n_in, 5 * groups, device=DEVICE)
    backward = torch.randn(kernel_map.n_out, 12, device=DEVICE)
    check(flow, kernel_map, forward, weight, groups=groups, mirrored=mirrored)
    other = kernel_map.transpose()
    check(flow, other, backward, weight, transposed=True, groups=groups, mirrored=mirrored)


@flows
def test_skip_connection_and_epilogue(flow: Dataflow) -> None:
    kernel_map = make(20, Kernel.of(3))
    rows = kernel_map.n_in
    x, skip = torch.randn(rows, 20, device=DEVICE), torch.randn(rows, 9, device=DEVICE)
    weight = torch.randn(27, 29, 18, device=DEVICE)
    check(flow, kernel_map, x, weight, skip=skip)
    vectors = torch.randn(18, device=DEVICE), torch.randn(18, device=DEVICE)
    residual = torch.randn(rows, 18, device=DEVICE)
    whole = Epilogue(*vectors, residual, relu=True)
    check(flow, kernel_map, x, weight, skip=skip, epilogue=whole, out_dtype=torch.float16)
    for epilogue in (Epilogue(shift=vectors[1]), Epilogue(residual=residual, relu=True)):
        check(flow, kernel_map, x, weight[:, :20].contiguous(), epilogue=epilogue)


@flows
@pytest.mark.parametrize(("n", "size"), [(0, 3), (1, 1), (2, 3)])
def test_small_and_empty_clouds(flow: Dataflow, n: int, size: int) -> None:
    kernel_map = make(n, Kernel.of(size))
    x = torch.randn(kernel_map.n_in, 4, device=DEVICE)
    weight = torch.randn(size**3, 4, 5, device=DEVICE)
    check(flow, kernel_map, x, weight)
    shift = torch.randn(5, device=DEVICE)
    check(flow, kernel_map, x, weight, epilogue=Epilogue(shift=shift))


@flows
def test_outputs_without_a_triplet_are_zero(flow: Dataflow) -> None:
    grid, other = surface_grid(60).to(DEVICE), surface_grid(60, seed=9).to(DEVICE)
    kernel_map = grid.map_to(other, Kernel.of(1), SortedSearch())
    lonely = ~torch.isin(torch.arange(other.rows, device=DEVICE), kernel_map.out_index.long())
    assert lonely.any()
    out = multiply(flow, kernel_map, *(torch.randn(s, device=DEVICE) for s in ((60, 3), (1, 3, 2))))
    assert (out[lonely] == 0).all()
    assert out.isfinite().all()


def test_a_slot_with_several_inputs() -> None:
    in_index = torch.tensor([0, 1, 2, 2, 0], dtype=torch.int32, device=DEVICE)
    out_index = torch.tensor([0, 0, 1, 0, 1], dtype=torch.int32, device=DEVICE)
    offsets = torch.tensor([0, 3, 3, 5])
    kernel_map = KernelMap.from_pairs(in_index, out_index, offsets, 3, 3, False, False, True)
    x, weight = torch.randn(3, 4, device=DEVICE), torch.randn(3, 4, 6, device=DEVICE)
    check(FLOWS[0], kernel_map, x, weight)


def test_gradient_of_weights() -> None:
    kernel_map = make(40, Kernel.of(3))
    x = torch.randn(kernel_map.n_in, 6, device=DEVICE)
    grad = torch.randn(kernel_map.n_out, 8, device=DEVICE)
    for flow in (FLOWS[0], FLOWS[3]):
        spec = SINGLE._replace(groups=2, mirrored=True)
        found = flow.weight_grad(x, grad, kernel_map.layouts(flow.needs_weight_grad), spec)
        wanted = Reference().weight_grad(x, grad, kernel_map.layout("pairs"), spec)
        assert relative_rms(found, wanted) < RELATIVE_RMS[torch.float32]


def test_what_cannot_be_served_is_refused() -> None:
    kernel_map = make(20, Kernel.of(3))
    x = torch.randn(kernel_map.n_in, 4, device=DEVICE, dtype=torch.float64)
    weight = torch.randn(27, 4, 4, device=DEVICE, dtype=torch.float64)
    for flow in FLOWS:
        with pytest.raises(ValueError, match="use the dataflow 'reference'"):
            multiply(flow, kernel_map, x, weight)
    with pytest.raises(ValueError, match="multiple of rows"):
        ChunkTiles(40, 16, 16, 16)
    with pytest.raises(ValueError, match="powers of two"):
        RowTiles(16, 24, 16)
    with pytest.raises(ValueError, match="threshold"):
        Hybrid(-1)


def test_names_tell_settings_apart() -> None:
    assert len({flow.name for flow in FLOWS}) == len(FLOWS)
    assert all(flow.name.isidentifier() for flow in FLOWS)
    assert not any(flow.deterministic for flow in FLOWS)


def test_tiles_of_any_shape_are_valid() -> None:
    from pcnn.kernels.product_tiles import ProductShape

    for channels in (1, 16, 33, 256):
        for pairs in (0, 1000, 1 << 20):
            for dtype in (torch.float16, torch.float32):
                shape = ProductShape(27, channels, 0, channels, 1, False, False)
                assert ChunkTiles.of(shape, pairs, dtype).columns >= min(channels, 16)
                assert RowTiles.of(shape, pairs, dtype).depth >= min(channels, 16)

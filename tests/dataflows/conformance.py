"""What every dataflow promises, as checks that run on any device against `Reference` in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow, Epilogue, Reference
from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import SortedSearch, Windowed
from tests.clouds import surface_grid
from tests.tolerance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

DOUBLE = (torch.float64, torch.float64)


@dataclass(frozen=True)
class Case:
    """A layer and the operands it gets."""

    kernel: Kernel
    c_in: int
    c_out: int
    dtype: torch.dtype = torch.float32
    groups: int = 1
    transposed: bool = False
    n: int = 300
    device: str = "cpu"

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        size, stride = ("".join(map(str, t)) for t in (self.kernel.size, self.kernel.stride))
        way = "T" if self.transposed else ""
        return f"{way}k{size}s{stride}-{self.c_in}-{self.c_out}-g{self.groups}-{dtype}-n{self.n}"

    def map(self) -> KernelMap:
        """The kernel map, by the builder of the device."""
        grid = surface_grid(self.n, batch_size=2).to(self.device)
        builder = Windowed() if grid.device.type == "cuda" else SortedSearch()
        built = grid.map_to(grid.strided(self.kernel), self.kernel, builder.build)
        return built.transpose() if self.transposed else built

    def randn(self, *shape: int) -> Tensor:
        """Operands in the case's dtype."""
        return torch.randn(*shape, dtype=torch.float64).to(self.device, self.dtype)

    def bound(self, out_dtype: torch.dtype) -> float:
        """Largest relative error of sums that are rounded to a dtype."""
        if self.device == "cuda" and out_dtype == torch.float32:
            return SUMS_ON_TENSOR_CORES
        return RELATIVE_RMS[out_dtype]


@contextmanager
def no_waits(device: str, dtype: torch.dtype) -> Iterator[None]:
    """Torch refuses to wait for the device, where kernels serve: float64 may be plain torch."""
    guarded = device == "cuda" and dtype != torch.float64
    if guarded:
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if guarded:
            torch.cuda.set_sync_debug_mode("default")


def check_products(dataflow: Dataflow, case: Case) -> None:
    """All three products, plain and mirrored, and what they are promised to look like."""
    kernel_map = case.map()
    ways = (False, True) if kernel_map.symmetric else (False,)
    x, y = case.randn(kernel_map.n_in, case.c_in), case.randn(kernel_map.n_out, case.c_out)
    weight = case.randn(kernel_map.volume, case.c_in // case.groups, case.c_out)
    for mirrored in ways:
        products = of(dataflow, kernel_map, x, y, weight, case, case.dtype, mirrored, case.device)
        exact = of(Reference(), kernel_map, x, y, weight, case, torch.float64, mirrored, "anywhere")
        for name, out, expected in zip(("out", "grad_x", "grad_w"), products, exact, strict=True):
            wanted = torch.float64 if case.dtype == torch.float64 else torch.float32
            dtype = wanted if name == "grad_w" else case.dtype
            where = f"{dataflow.name} {case} {name} mirrored={mirrored}"
            assert out.dtype == dtype, where
            assert out.shape == expected.shape, where
            assert relative_rms(out, expected) < case.bound(dtype), where


def of(
    dataflow: Dataflow,
    kernel_map: KernelMap,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    case: Case,
    dtype: torch.dtype,
    mirrored: bool,
    device: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, gradient of the features and, not rounded to half, of the weights."""
    if dtype == torch.float64:
        x, y, weight = x.double(), y.double(), weight.double()
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    forward, outer = kernel_map.flat(dataflow.needs), kernel_map.flat(dataflow.needs_vvor)
    other, other_way = forward, not mirrored
    if not kernel_map.symmetric:
        other, other_way = kernel_map.transpose().flat(dataflow.needs), False
    sizes, groups = (kernel_map.n_out, kernel_map.n_in), case.groups
    with no_waits(device, dtype):
        out = dataflow.mvmr(
            x, weight, forward, sizes[0], groups, False, dtype, dtype, mirrored=mirrored
        )
        grad_x = dataflow.mvmr(
            y, weight, other, sizes[1], groups, True, dtype, dtype, mirrored=other_way
        )
        grad_w = dataflow.vvor(x, y, outer, groups, dtype, wide, mirrored=mirrored)
    return out, grad_x, grad_w


def check_fused(dataflow: Dataflow, case: Case, c_second: int, epilogue: str) -> None:
    """A second source and an epilogue, in one call.

    Args:
        dataflow: one that fuses.
        case: without groups.
        c_second: channels of the second source, 0 for none.
        epilogue: its parts, some of the letters of ``scale shift residual relu``: ``a b r +``.
    """
    kernel_map = case.map()
    x = case.randn(kernel_map.n_in, case.c_in)
    second = case.randn(kernel_map.n_in, c_second) if c_second else None
    weight = case.randn(kernel_map.volume, case.c_in + c_second, case.c_out)
    residual = case.randn(kernel_map.n_out, case.c_out)
    scale, shift = (torch.randn(case.c_out).to(case.device) for _ in range(2))

    def parts(convert: Callable[[Tensor], Tensor]) -> Epilogue:
        return Epilogue(
            convert(scale) if "a" in epilogue else None,
            convert(shift) if "b" in epilogue else None,
            convert(residual) if "r" in epilogue else None,
            "+" in epilogue,
        )

    for mirrored in (False, True) if kernel_map.symmetric else (False,):
        layouts = kernel_map.flat(dataflow.needs)
        with no_waits(case.device, case.dtype):
            out = dataflow.mvmr(
                x,
                weight,
                layouts,
                kernel_map.n_out,
                1,
                False,
                case.dtype,
                case.dtype,
                mirrored=mirrored,
                second=second,
                epilogue=parts(lambda t: t),
            )
        expected = Reference().mvmr(
            x.double(),
            weight.double(),
            kernel_map.flat(Reference().needs),
            kernel_map.n_out,
            1,
            False,
            *DOUBLE,
            mirrored=mirrored,
            second=None if second is None else second.double(),
            epilogue=parts(Tensor.double),
        )
        where = f"{dataflow.name} {case} second={c_second} {epilogue!r} mirrored={mirrored}"
        assert out.dtype == case.dtype, where
        assert relative_rms(out, expected) < case.bound(case.dtype), where


def check_repeats(dataflow: Dataflow, case: Case) -> None:
    """Two runs of a deterministic dataflow give identical bits."""
    kernel_map = case.map()
    x, y = case.randn(kernel_map.n_in, case.c_in), case.randn(kernel_map.n_out, case.c_out)
    weight = case.randn(kernel_map.volume, case.c_in // case.groups, case.c_out)
    one, other = (
        of(dataflow, kernel_map, x, y, weight, case, case.dtype, False, case.device)
        for _ in range(2)
    )
    for first, second in zip(one, other, strict=True):
        assert torch.equal(first, second), f"{dataflow.name} {case}"

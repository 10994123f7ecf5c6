"""What every dataflow promises, as checks of single layers that run on any device.

The whole list of layers is in `pcnn.ops.whole_check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow, Epilogue, Reference
from pcnn.geometry import Kernel, KernelMap
from pcnn.kernels.tf32 import tf32_products
from pcnn.maps import SortedSearch, Windowed
from pcnn.maps.conformance import wavy_grid

#: Bound on the relative RMS error against float64 of a result that is rounded to a dtype, whose
#: operands were rounded before the reference ran. float64: order of additions. float32: sums of up
#: to a few thousand terms (worst seen 3e-7). float16, bfloat16: one rounding of the result, half an
#: ulp is 2^-11 and 2^-8 (worst seen 2.1e-4 and 1.7e-3); products and sums are float32.
RELATIVE_RMS = {
    torch.float64: 1e-14,
    torch.float32: 1e-6,
    torch.float16: 5e-4,
    torch.bfloat16: 4e-3,
}
#: Float32 results of sums on a GPU: tensor cores truncate where they align the terms of a sum, so
#: errors do not cancel (worst seen 6.6e-5, all towards zero, of a million terms a slot).
SUMS_ON_TENSOR_CORES = 1e-4

DOUBLE = (torch.float64, torch.float64)
#: Of the three products.
NAMES = ("out", "grad_x", "grad_weight")
Products = tuple[Tensor, Tensor, Tensor]


class Nonconforming(RuntimeError):
    """A dataflow that breaks its promise; the message says where, the error and its bound."""


def relative_rms(value: Tensor, reference: Tensor) -> float:
    """``||value - reference|| / ||reference||``; NaN never passes a comparison."""
    value, reference = value.detach().double(), reference.detach().double()
    return float((value - reference).norm() / reference.norm().clamp_min(1e-300))


@dataclass(frozen=True)
class Case:
    """A layer and its operands.

    Args:
        kernel: the relation.
        c_in: input channels.
        c_out: output channels.
        dtype: of the operands.
        groups: groups of channels.
        transposed: whether the layer reads the map from its other side.
        n: voxels drawn, in two clouds.
        device: where.
        scale: of the operands: sums of products beyond float16 do not overflow.
        apart: whether the output sites are those of another cloud, so that many have no triplet.
    """

    kernel: Kernel
    c_in: int
    c_out: int
    dtype: torch.dtype = torch.float32
    groups: int = 1
    transposed: bool = False
    n: int = 300
    device: str = "cpu"
    scale: float = 1.0
    apart: bool = False

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        size, stride = ("".join(map(str, t)) for t in (self.kernel.size, self.kernel.stride))
        spread = max(self.kernel.dilation)
        way = "T" if self.transposed else ""
        words = [f"{way}k{size}s{stride}" + (f"d{spread}" if spread > 1 else "")]
        words += [f"{self.c_in}-{self.c_out}-g{self.groups}-{dtype}-n{self.n}"]
        words += [f"x{self.scale:g}"] if self.scale != 1.0 else []
        words += ["apart"] if self.apart else []
        return "-".join(words)

    def map(self) -> KernelMap:
        """The kernel map, by the builder of the device."""
        grid = wavy_grid(self.n, batch_size=2).to(self.device)
        builder = Windowed() if grid.device.type == "cuda" else SortedSearch()
        sites = wavy_grid(self.n, batch_size=2, seed=9).to(self.device) if self.apart else grid
        built = grid.map_to(sites.strided(self.kernel), self.kernel, builder)
        return built.transpose() if self.transposed else built

    def randn(self, random: torch.Generator, *shape: int) -> Tensor:
        """Operands in the case's dtype, from a generator of the CPU."""
        drawn = torch.randn(*shape, dtype=torch.float64, generator=random)
        return (self.scale * drawn).to(self.device, self.dtype)

    def bound(self, out_dtype: torch.dtype) -> float:
        """Largest relative RMS error of sums that are rounded to a dtype."""
        if torch.device(self.device).type == "cuda" and out_dtype == torch.float32:
            return SUMS_ON_TENSOR_CORES
        return RELATIVE_RMS[out_dtype]


class Example:
    """A case with its map, operands and true products, which serve any number of dataflows.

    Args:
        case: the layer.
        c_second: channels of a second source; only where a dataflow fuses.
    """

    def __init__(self, case: Case, c_second: int = 0) -> None:
        self.case, self.c_second = case, c_second
        self.map = case.map()
        random = torch.Generator().manual_seed(0)
        n_in, n_out, volume = self.map.n_in, self.map.n_out, self.map.volume
        self.x = case.randn(random, n_in, case.c_in)
        self.y = case.randn(random, n_out, case.c_out)
        depth = case.c_in // case.groups + c_second
        self.weight = case.randn(random, volume, depth, case.c_out)
        self.second = case.randn(random, n_in, c_second) if c_second else None
        self.residual = case.randn(random, n_out, case.c_out)
        scale, shift = torch.randn(2, case.c_out, generator=random).to(case.device).unbind()
        self._norm = scale, shift

    @property
    def ways(self) -> tuple[bool, ...]:
        """Values of ``mirrored`` that the map serves."""
        return (False, True) if self.map.symmetric else (False,)

    @cached_property
    def exact(self) -> dict[bool, Products]:
        """Output and both gradients in float64, plain and mirrored."""
        x, y, weight = self.x.double(), self.y.double(), self.weight.double()
        case = replace(self.case, dtype=torch.float64)
        return {way: products(Reference(), self.map, x, y, weight, case, way) for way in self.ways}

    def epilogue(self, parts: str, wide: bool = False) -> Epilogue:
        """An epilogue of some of the letters ``a b r +``: scale, shift, residual, ReLU."""
        (scale, shift), residual = self._norm, self.residual
        if wide:
            scale, shift, residual = scale.double(), shift.double(), residual.double()
        return Epilogue(
            scale if "a" in parts else None,
            shift if "b" in parts else None,
            residual if "r" in parts else None,
            "+" in parts,
        )


@contextmanager
def no_waits(case: Case, may_wait: bool = False) -> Iterator[None]:
    """Products in full precision; torch refuses to wait for the device unless it may.

    Float64 may be plain torch, which waits.
    """
    guarded = torch.device(case.device).type == "cuda" and case.dtype != torch.float64
    guarded &= not may_wait
    if guarded:
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
    try:
        with tf32_products(False):
            yield
    finally:
        if guarded:
            torch.cuda.set_sync_debug_mode("default")


def products(
    dataflow: Dataflow,
    kernel_map: KernelMap,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    case: Case,
    mirrored: bool = False,
    may_wait: bool = False,
) -> Products:
    """Output, gradient of the features and, not rounded to half, of the weights."""
    dtype, groups = case.dtype, case.groups
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    forward, outer = kernel_map.layouts(dataflow.needs), kernel_map.layouts(dataflow.needs_vvor)
    other, other_way = forward, not mirrored
    if not kernel_map.symmetric:
        other, other_way = kernel_map.transpose().layouts(dataflow.needs), False
    n_out, n_in, both = kernel_map.n_out, kernel_map.n_in, (dtype, dtype)
    with no_waits(case, may_wait):
        out = dataflow.mvmr(x, weight, forward, n_out, groups, False, *both, mirrored=mirrored)
        grad_x = dataflow.mvmr(y, weight, other, n_in, groups, True, *both, mirrored=other_way)
        grad_w = dataflow.vvor(x, y, outer, groups, dtype, wide, mirrored=mirrored)
    return out, grad_x, grad_w


def check_products(
    dataflow: Dataflow, case: Case, example: Example | None = None, may_wait: bool = False
) -> None:
    """All three products, plain and mirrored, and what they are promised to look like.

    Args:
        dataflow: what is checked.
        case: the layer.
        example: of the case, if it is there.
        may_wait: whether the host may wait for the device.

    Raises:
        Nonconforming: one is not.
        ValueError: the dataflow does not serve the case.
    """
    example = example or Example(case)
    operands = example.map, example.x, example.y, example.weight, case
    for mirrored, exact in example.exact.items():
        wide = torch.promote_types(case.dtype, torch.float32)
        dtypes = case.dtype, case.dtype, wide
        for tensor, dtype in zip(exact, dtypes, strict=True):
            _poison(tensor, dtype)
        found = products(dataflow, *operands, mirrored, may_wait)
        for name, dtype, out, expected in zip(NAMES, dtypes, found, exact, strict=True):
            _compare(f"{case}, {name}" + ", mirrored" * mirrored, case, dtype, out, expected)


def check_fused(
    dataflow: Dataflow,
    case: Case,
    c_second: int,
    epilogue: str,
    example: Example | None = None,
    may_wait: bool = False,
) -> None:
    """A second source and an epilogue, in one call.

    Args:
        dataflow: one that fuses.
        case: without groups.
        c_second: channels of the second source, 0 for none.
        epilogue: its parts, some of the letters of ``scale shift residual relu``: ``a b r +``.
        example: of the case and the second source, if it is there.
        may_wait: whether the host may wait for the device.

    Raises:
        Nonconforming: another result.
        ValueError: the dataflow does not serve the case.
    """
    example = example or Example(case, c_second)
    map_, second = example.map, example.second
    for mirrored in example.ways:
        how: dict[str, Any] = {"mirrored": mirrored}
        expected = Reference().mvmr(
            example.x.double(),
            example.weight.double(),
            map_.layouts(Reference().needs),
            map_.n_out,
            1,
            False,
            *DOUBLE,
            second=None if second is None else second.double(),
            epilogue=example.epilogue(epilogue, wide=True),
            **how,
        )
        layouts = map_.layouts(dataflow.needs)
        how |= {"second": second, "epilogue": example.epilogue(epilogue)}
        both = case.dtype, case.dtype
        _poison(expected, case.dtype)
        with no_waits(case, may_wait):
            out = dataflow.mvmr(
                example.x, example.weight, layouts, map_.n_out, 1, False, *both, **how
            )
        words = f"{case}, second source of {c_second}, epilogue {epilogue!r}"
        _compare(words + ", mirrored" * mirrored, case, case.dtype, out, expected)


def check_repeats(dataflow: Dataflow, case: Case, example: Example | None = None) -> None:
    """Two runs of a deterministic dataflow give identical bits.

    Raises:
        Nonconforming: they do not.
        ValueError: the dataflow does not serve the case.
    """
    example = example or Example(case)
    operands = example.map, example.x, example.y, example.weight, case
    one, other = (products(dataflow, *operands, may_wait=True) for _ in range(2))
    for name, first, second in zip(NAMES, one, other, strict=True):
        if not torch.equal(first, second):
            raise Nonconforming(
                f"{case}, {name}: two runs differ by up to {_largest(first - second):.1e}, but the "
                "dataflow says deterministic=True; the bound is 0"
            )


def _poison(like: Tensor, dtype: torch.dtype) -> None:
    """Freed memory is handed out next: let it not hold the last dataflow's right values."""
    torch.full_like(like, torch.nan, dtype=dtype)


def _compare(where: str, case: Case, dtype: torch.dtype, out: Tensor, expected: Tensor) -> None:
    if out.shape != expected.shape or out.dtype != dtype:
        raise Nonconforming(
            f"{where}: {out.dtype} {list(out.shape)} instead of {dtype} {list(expected.shape)}"
        )
    error, bound = relative_rms(out, expected), case.bound(dtype)
    if not error < bound:
        raise Nonconforming(
            f"{where}: the relative RMS error is {error:.1e}, its bound {bound:.1e}"
        )


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0

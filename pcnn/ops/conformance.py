"""Checks of dataflows: every promise, over all layers that dataflows have differed in.

A dataflow may refuse by a ``ValueError`` what it does not serve; what it serves, it serves right.
Benchmarks run the whole check (`check_dataflow`), and the tests run the same checks over more
layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import torch
from torch import Tensor, nn

from pcnn.dataflows import ConvSpec, Dataflow, Epilogue, Reference
from pcnn.geometry import Kernel, KernelMap
from pcnn.kernels.conv_spec import tf32_products
from pcnn.maps import Windowed
from pcnn.maps.conformance import Nonconforming, run_checks, wavy_grid

#: Of the three products.
NAMES = ("out", "grad_x", "grad_weight")
Products = tuple[Tensor, Tensor, Tensor]

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
K3, DOWN, EVEN = Kernel.of(3), Kernel.of(3, 2), Kernel.of(2, 2)

#: Bound on the relative RMS error against float64 of a result that is rounded to a dtype, whose
#: operands were rounded before the reference ran. float64: order of additions. float32: sums of up
#: to a few thousand terms (worst seen 3e-7). float16, bfloat16: one rounding of the result, half an
#: ulp is 2^-11 and 2^-8 (worst seen 2.1e-4 and 1.7e-3); products and sums are float32.
RELATIVE_RMS = {DOUBLE: 1e-14, SINGLE: 1e-6, HALF: 5e-4, BRAIN: 4e-3}
#: Float32 results of sums on a GPU: tensor cores truncate where they align the terms of a sum, so
#: errors do not cancel (worst seen 6.6e-5, all towards zero, of a million terms a slot).
SUMS_ON_TENSOR_CORES = 1e-4


def relative_rms(value: Tensor, reference: Tensor) -> float:
    """``||value - reference|| / ||reference||``; NaN never passes a comparison."""
    value, reference = value.detach().double(), reference.detach().double()
    return float((value - reference).norm() / reference.norm().clamp_min(1e-300))


@dataclass(frozen=True)
class Case:
    """A layer and its operands."""

    kernel: Kernel  # the relation
    c_in: int  # input channels
    c_out: int  # output channels
    dtype: torch.dtype = SINGLE  # of the operands
    groups: int = 1  # groups of channels
    transposed: bool = False  # whether the layer reads the map from its other side
    n: int = 300  # voxels drawn, in two clouds
    device: str = "cpu"  # where
    scale: float = 1.0  # of the operands: sums of products beyond float16 do not overflow
    apart: bool = False  # whether the output sites are those of another cloud

    def map(self) -> KernelMap:
        """The kernel map, by the builder of the device."""
        grid = wavy_grid(self.n, batch_size=2).to(self.device)
        sites = wavy_grid(self.n, batch_size=2, seed=9).to(self.device) if self.apart else grid
        built = grid.map_to(sites.strided(self.kernel), self.kernel, Windowed())
        return built.transpose() if self.transposed else built

    def bound(self, out_dtype: torch.dtype) -> float:
        """Largest relative RMS error of sums that are rounded to a dtype."""
        on_tensor_cores = torch.device(self.device).type == "cuda" and out_dtype == SINGLE
        return SUMS_ON_TENSOR_CORES if on_tensor_cores else RELATIVE_RMS[out_dtype]


@dataclass(frozen=True)
class FanIn(Case):
    """A layer over a random map, most slots with several inputs; its kernel has a volume alone."""

    symmetric: bool = False  # whether the map is its own transpose

    def map(self) -> KernelMap:
        """``n`` output rows, fewer input rows unless symmetric, some 8 triplets a row."""
        rows = self.n if self.symmetric else -(-2 * self.n // 3)
        built = random_map(rows, self.n, self.kernel.volume, 8 * self.n, self.symmetric)
        return moved(built.transpose() if self.transposed else built, self.device)


def map_of(
    i: Tensor, j: Tensor, k: Tensor, n_in: int, n_out: int, volume: int, symmetric: bool = False
) -> KernelMap:
    """Kernel map of triplets in any order, slots and rows as builders sort them."""
    order = torch.argsort((k * max(1, n_out) + i) * max(1, n_in) + j)
    ends = torch.cumsum(torch.bincount(k, minlength=volume), 0)
    pairs = j[order].int(), i[order].int(), nn.functional.pad(ends, (1, 0)).cpu()
    return KernelMap.from_pairs(*pairs, n_in, n_out, False, False, symmetric)


def random_map(
    n_in: int, n_out: int, volume: int, triplets: int, symmetric: bool = False, seed: int = 0
) -> KernelMap:
    """Random triplets, most slots with several inputs, some triplets twice."""
    triplets = triplets if n_in and n_out else 0
    random = torch.Generator().manual_seed(seed)
    # a few rows get most triplets, the last row none
    i = (torch.rand(triplets, generator=random) ** 2 * max(0, n_out - 1)).long()
    j = torch.randint(max(1, n_in), (triplets,), generator=random)
    k = (torch.rand(triplets, generator=random) * volume).long()
    k = torch.where(k == 1, 0, k)  # an empty slot, and a full one
    if symmetric:
        own = torch.arange(n_out)
        i, j = torch.cat((i, j, own)), torch.cat((j, i, own))
        k = torch.cat((k, volume - 1 - k, torch.full_like(own, volume // 2)))
    return map_of(i, j, k, n_in, n_out, volume, symmetric)


def moved(kernel_map: KernelMap, device: str) -> KernelMap:
    """The same map on another device."""
    *pairs, offsets = kernel_map.layout("pairs")
    in_index, out_index = (index.to(device) for index in pairs)
    rows = kernel_map.n_in, kernel_map.n_out
    symmetric = kernel_map.symmetric
    return KernelMap.from_pairs(in_index, out_index, offsets, *rows, False, False, symmetric)


class Example:
    """A case with its map, operands and true products, which serve any number of dataflows."""

    def __init__(self, case: Case, c_skip: int = 0) -> None:
        self.case, self.c_skip = case, c_skip
        self.map = case.map()
        random = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            values = case.scale * torch.randn(*shape, dtype=DOUBLE, generator=random)
            return values.to(case.device, case.dtype)

        n_in, n_out, volume = self.map.n_in, self.map.n_out, self.map.volume
        self.x, self.y = drawn(n_in, case.c_in), drawn(n_out, case.c_out)
        self.weight = drawn(volume, case.c_in // case.groups + c_skip, case.c_out)
        self.skip = drawn(n_in, c_skip) if c_skip else None
        self.residual = drawn(n_out, case.c_out)
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
        case = replace(self.case, dtype=DOUBLE)
        return {way: products(Reference(), self.map, x, y, weight, case, way) for way in self.ways}

    def epilogue(self, parts: str, dtype: torch.dtype | None = None) -> Epilogue:
        """An epilogue of some of the letters ``a b r +``: scale, shift, residual, ReLU."""
        given = zip("abr", (*self._norm, self.residual), strict=True)
        scale, shift, residual = (t.to(dtype) if one in parts else None for one, t in given)
        return Epilogue(scale, shift, residual, "+" in parts)


@contextmanager
def no_waits(case: Case, may_wait: bool = False) -> Iterator[None]:
    """Full precision; torch refuses to wait for the device, except in float64 (plain torch)."""
    guarded = torch.device(case.device).type == "cuda" and case.dtype != DOUBLE and not may_wait
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
    forward = other = kernel_map.layouts(dataflow.needs)
    outer, other_way = kernel_map.layouts(dataflow.needs_weight_grad), not mirrored
    if not kernel_map.symmetric:
        other, other_way = kernel_map.transpose().layouts(dataflow.needs), False
    spec = ConvSpec(case.groups, False, mirrored, case.dtype, case.dtype)
    turned = spec._replace(transposed=True, mirrored=other_way)
    wide = spec._replace(out_dtype=torch.promote_types(case.dtype, SINGLE))
    with no_waits(case, may_wait):
        return (
            dataflow.forward(x, weight, forward, kernel_map.n_out, spec),
            dataflow.forward(y, weight, other, kernel_map.n_in, turned),
            dataflow.weight_grad(x, y, outer, wide),
        )


def check_products(
    dataflow: Dataflow, case: Case, example: Example | None = None, may_wait: bool = False
) -> None:
    """All three products, plain and mirrored, and what they are promised to look like."""
    example = example or Example(case)
    operands = example.map, example.x, example.y, example.weight, case
    dtypes = case.dtype, case.dtype, torch.promote_types(case.dtype, SINGLE)
    for mirrored, exact in example.exact.items():
        for tensor, dtype in zip(exact, dtypes, strict=True):
            _poison(tensor, dtype)
        found = products(dataflow, *operands, mirrored, may_wait)
        for name, dtype, out, expected in zip(NAMES, dtypes, found, exact, strict=True):
            _compare(f"{case}, {name}" + ", mirrored" * mirrored, case, dtype, out, expected)


def check_fused(
    dataflow: Dataflow,
    case: Case,
    c_skip: int,
    epilogue: str,
    example: Example | None = None,
    may_wait: bool = False,
) -> None:
    """A skip connection and an epilogue, in one call."""
    example = example or Example(case, c_skip)
    map_, x, weight, skip = example.map, example.x, example.weight, example.skip
    for mirrored in example.ways:
        true_skip = None if skip is None else skip.double()
        true_parts = example.epilogue(epilogue, DOUBLE)
        exact = ConvSpec(1, False, mirrored, DOUBLE, DOUBLE, true_parts, true_skip)
        own = ConvSpec(1, False, mirrored, case.dtype, case.dtype, example.epilogue(epilogue), skip)
        listed = map_.layouts(Reference().needs), map_.n_out
        expected = Reference().forward(x.double(), weight.double(), *listed, exact)
        layouts = map_.layouts(dataflow.needs)
        _poison(expected, case.dtype)
        with no_waits(case, may_wait):
            out = dataflow.forward(x, weight, layouts, map_.n_out, own)
        words = f"{case}, skip connection of {c_skip}, epilogue {epilogue!r}"
        _compare(words + ", mirrored" * mirrored, case, case.dtype, out, expected)


def check_repeats(dataflow: Dataflow, case: Case, example: Example | None = None) -> None:
    """Two runs of a deterministic dataflow give identical bits."""
    example = example or Example(case)
    operands = example.map, example.x, example.y, example.weight, case
    one, other = (products(dataflow, *operands, may_wait=True) for _ in range(2))
    for name, first, second in zip(NAMES, one, other, strict=True):
        if not torch.equal(first, second):
            raise Nonconforming(f"{case}, {name}: two runs differ, but deterministic is True")


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


def cases() -> Iterator[Case]:
    """Layers that differ in one thing at a time; few shapes, as kernels are compiled for each."""
    for dtype in (HALF, BRAIN, SINGLE, DOUBLE):
        yield Case(K3, 16, 32, dtype)
    for dtype in (HALF, SINGLE):
        yield Case(K3, 33, 20, dtype)  # channels that no block divides
        yield Case(K3, 1, 3, dtype)
        yield Case(K3, 12, 6, dtype, groups=3)
    for kernel in (DOWN, EVEN, Kernel.of(2), Kernel.of(5), Kernel.of((1, 3, 5), 1, 2)):
        for transposed in (False, True):
            yield Case(kernel, 16, 32, HALF, transposed=transposed)
    for n in (0, 1, 65):
        yield Case(K3, 16, 32, HALF, n=n)
    yield Case(K3, 16, 32, SINGLE, n=5000)  # beyond every block of rows
    yield Case(K3, 16, 32, HALF, apart=True)  # rows without a triplet
    yield Case(Kernel.of(1), 16, 32, HALF, scale=40.0)  # gradients that float16 does not hold
    for symmetric in (False, True):
        yield FanIn(K3, 16, 32, HALF, symmetric=symmetric)
    yield FanIn(EVEN, 16, 32, SINGLE, transposed=True)


#: Channels of the skip connection, epilogue, dtype and voxels of the fused products.
FUSED = (
    (0, "abr+", HALF, 300),
    (0, "b", SINGLE, 300),
    (5, "ab+", HALF, 300),
    (32, "", SINGLE, 300),
    (5, "r", HALF, 1),
    (0, "ab+", HALF, 0),
)


@lru_cache(maxsize=8)
def _examples(device: str) -> tuple[list[Example], list[tuple[Example, str]]]:
    """Those of `cases`, and those of `FUSED` with their epilogues."""
    fused = [
        (Example(Case(K3, 16, 32, dtype, n=n, device=device), c_skip), epilogue)
        for c_skip, epilogue, dtype, n in FUSED
    ]
    return [Example(replace(case, device=device)) for case in cases()], fused


def _checks(dataflow: Dataflow, device: str) -> Iterator[tuple[object, Callable[[], None]]]:
    plain, fused = _examples(device)
    for one in plain:
        yield one.case, partial(check_products, dataflow, one.case, one, may_wait=True)
    for one, epilogue in fused if dataflow.fuses else ():
        given = one.case, one.c_skip, epilogue, one
        yield one.case, partial(check_fused, dataflow, *given, may_wait=True)
    for one in plain[:1] + plain[-2:] if dataflow.deterministic else ():
        yield one.case, partial(check_repeats, dataflow, one.case, one)


@lru_cache(maxsize=256)  # of those that pass: an error is not kept
@torch.no_grad()
def check_dataflow(dataflow: Dataflow, device: torch.device) -> None:
    """Run the whole check once in a process for every dataflow and device."""
    run_checks(f"dataflow {dataflow.name!r} on {device}", _checks(dataflow, str(device)))

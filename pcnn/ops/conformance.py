"""Checks of dataflows: every promise, over all layers that dataflows have differed in.

A dataflow may refuse by a ``ValueError`` what it does not serve; what it serves, it serves right.
Benchmarks run the whole check (`check_dataflow`) with ``--gate``, `pcnn.tune` before it tries a
dataflow that it was given, and the conformance tests run the same checks over more layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache, partial

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Dataflow, Epilogue, Reference
from pcnn.geometry import Kernel, KernelMap
from pcnn.kernels.tf32 import tf32_products
from pcnn.ops.conformance_cases import Case, FanIn

#: Of the three products.
NAMES = ("out", "grad_x", "grad_weight")
Products = tuple[Tensor, Tensor, Tensor]
#: Faults that a refusal spells out; the others are counted.
NAMED = 2

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
K3, DOWN, EVEN = Kernel.of(3), Kernel.of(3, 2), Kernel.of(2, 2)


class Nonconforming(RuntimeError):
    """A dataflow that breaks its promise; the message says where, the error and its bound."""


def relative_rms(value: Tensor, reference: Tensor) -> float:
    """``||value - reference|| / ||reference||``; NaN never passes a comparison."""
    value, reference = value.detach().double(), reference.detach().double()
    return float((value - reference).norm() / reference.norm().clamp_min(1e-300))


class Example:
    """A case with its map, operands and true products, which serve any number of dataflows."""

    def __init__(self, case: Case, c_skip: int = 0) -> None:
        self.case, self.c_skip = case, c_skip
        self.map = case.map()
        random = torch.Generator().manual_seed(0)
        n_in, n_out, volume = self.map.n_in, self.map.n_out, self.map.volume
        self.x = case.randn(random, n_in, case.c_in)
        self.y = case.randn(random, n_out, case.c_out)
        depth = case.c_in // case.groups + c_skip
        self.weight = case.randn(random, volume, depth, case.c_out)
        self.skip = case.randn(random, n_in, c_skip) if c_skip else None
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
    wide = torch.promote_types(dtype, torch.float32)
    forward, outer = (
        kernel_map.layouts(dataflow.needs),
        kernel_map.layouts(dataflow.needs_weight_grad),
    )
    other, other_way = forward, not mirrored
    if not kernel_map.symmetric:
        other, other_way = kernel_map.transpose().layouts(dataflow.needs), False
    spec = ConvSpec(groups, False, mirrored, dtype, dtype)
    turned = spec._replace(transposed=True, mirrored=other_way)
    with no_waits(case, may_wait):
        out = dataflow.forward(x, weight, forward, kernel_map.n_out, spec)
        grad_x = dataflow.forward(y, weight, other, kernel_map.n_in, turned)
        grad_w = dataflow.weight_grad(x, y, outer, spec._replace(out_dtype=wide))
    return out, grad_x, grad_w


def check_products(
    dataflow: Dataflow, case: Case, example: Example | None = None, may_wait: bool = False
) -> None:
    """All three products, plain and mirrored, and what they are promised to look like."""
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
    c_skip: int,
    epilogue: str,
    example: Example | None = None,
    may_wait: bool = False,
) -> None:
    """A skip connection and an epilogue, in one call."""
    example = example or Example(case, c_skip)
    map_, x, weight, skip = example.map, example.x, example.weight, example.skip
    for mirrored in example.ways:
        parts, true_parts = example.epilogue(epilogue), example.epilogue(epilogue, wide=True)
        true_skip = None if skip is None else skip.double()
        exact = ConvSpec(1, False, mirrored, DOUBLE, DOUBLE, true_parts, true_skip)
        spec = ConvSpec(1, False, mirrored, case.dtype, case.dtype, parts, skip)
        listed = map_.layouts(Reference().needs), map_.n_out
        expected = Reference().forward(x.double(), weight.double(), *listed, exact)
        layouts = map_.layouts(dataflow.needs)
        _poison(expected, case.dtype)
        with no_waits(case, may_wait):
            out = dataflow.forward(x, weight, layouts, map_.n_out, spec)
        words = f"{case}, skip connection of {c_skip}, epilogue {epilogue!r}"
        _compare(words + ", mirrored" * mirrored, case, case.dtype, out, expected)


def check_repeats(dataflow: Dataflow, case: Case, example: Example | None = None) -> None:
    """Two runs of a deterministic dataflow give identical bits."""
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


def cases() -> Iterator[Case]:
    """Layers that differ in one thing at a time; few shapes, as kernels are compiled for each."""
    for dtype in (HALF, BRAIN, SINGLE, DOUBLE):
        yield Case(K3, 16, 32, dtype)
    for dtype in (HALF, SINGLE):
        yield Case(K3, 33, 20, dtype)  # channels that no block divides
        yield Case(K3, 1, 3, dtype)
        yield Case(K3, 12, 6, dtype, groups=3)
        for transposed in (False, True):
            yield Case(EVEN, 16, 32, dtype, transposed=transposed)
    for kernel in (DOWN, Kernel.of(2), Kernel.of((1, 3, 5)), Kernel.of(3, 1, 2)):
        for transposed in (False, True):
            yield Case(kernel, 16, 32, HALF, transposed=transposed)
    yield Case(Kernel.of(5), 16, 32, HALF)
    for n in (0, 1, 65):
        yield Case(K3, 16, 32, HALF, n=n)
        yield Case(EVEN, 16, 32, HALF, n=n, transposed=True)
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
def _examples(device: str) -> tuple[Example, ...]:
    return tuple(Example(_on(case, device)) for case in cases())


@lru_cache(maxsize=8)
def _fused(device: str) -> tuple[tuple[Example, str], ...]:
    return tuple(
        (Example(Case(K3, 16, 32, dtype, n=n, device=device), c_skip), epilogue)
        for c_skip, epilogue, dtype, n in FUSED
    )


def _on(case: Case, device: str) -> Case:
    return type(case)(**{**vars(case), "device": device})


def _checks(dataflow: Dataflow, device: str) -> Iterator[Callable[[], None]]:
    examples = _examples(device)
    for one in examples:
        yield partial(check_products, dataflow, one.case, one, may_wait=True)
    if dataflow.fuses:
        for one, epilogue in _fused(device):
            yield partial(check_fused, dataflow, one.case, one.c_skip, epilogue, one, may_wait=True)
    if dataflow.deterministic:
        for one in examples[:1] + examples[-2:]:
            yield partial(check_repeats, dataflow, one.case, one)


def check_dataflow(dataflow: Dataflow, device: torch.device) -> None:
    """Run the whole check once in a process for every dataflow and device.

    A second on a CPU, and on a GPU what the compilation of its kernels takes.
    """
    _passed(dataflow, str(device))


@lru_cache(maxsize=256)  # of those that pass: an error is not kept
@torch.no_grad()
def _passed(dataflow: Dataflow, device: str) -> None:
    faults: list[str] = []
    count = refused = 0
    for check in _checks(dataflow, device):
        count += 1
        try:
            check()
        except ValueError:  # refused by name, which is no wrong result
            refused += 1
            continue
        except Nonconforming as error:
            faults.append(str(error))
        except Exception as error:  # a compiler's errors have no base of their own
            first = str(error).splitlines()[:1]
            case = check.args[1]  # type: ignore[attr-defined]
            faults.append(": ".join([str(case), type(error).__name__, *first]))
    if refused == count:
        raise Nonconforming(f"dataflow {dataflow.name!r} refuses all {count} checks on {device}")
    if faults:
        more = "" if len(faults) <= NAMED else f"; and {len(faults) - NAMED} more"
        raise Nonconforming(
            f"dataflow {dataflow.name!r} fails {len(faults)} of {count} checks on {device}: "
            + "; ".join(faults[:NAMED])
            + more
        )

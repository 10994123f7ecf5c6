"""The whole check of a dataflow: every promise, over all layers that dataflows have differed in.

A dataflow may refuse by a ``ValueError`` what it does not serve; what it serves, it serves right.
`pcnn bench` asks for this check before it times a dataflow, `pcnn.tune` before it tries one that it
was given, and the conformance tests run the same checks over more layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import torch

from pcnn.dataflows import Dataflow
from pcnn.geometry import Kernel
from pcnn.ops.conformance import (
    Case,
    Example,
    Nonconforming,
    check_fused,
    check_products,
    check_repeats,
)
from pcnn.ops.fan_in import FanIn

#: Faults that a refusal spells out; the others are counted.
NAMED = 2

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
K3, DOWN, EVEN = Kernel.of(3), Kernel.of(3, 2), Kernel.of(2, 2)


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


#: Channels of the second source, epilogue, dtype and voxels of the fused products.
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
        (Example(Case(K3, 16, 32, dtype, n=n, device=device), c_second), epilogue)
        for c_second, epilogue, dtype, n in FUSED
    )


def _on(case: Case, device: str) -> Case:
    return type(case)(**{**vars(case), "device": device})


def _checks(dataflow: Dataflow, device: str) -> Iterator[Callable[[], None]]:
    examples = _examples(device)
    for one in examples:
        yield partial(check_products, dataflow, one.case, one, may_wait=True)
    if dataflow.fuses:
        for one, epilogue in _fused(device):
            yield partial(
                check_fused, dataflow, one.case, one.c_second, epilogue, one, may_wait=True
            )
    if dataflow.deterministic:
        for one in examples[:1] + examples[-2:]:
            yield partial(check_repeats, dataflow, one.case, one)


def check_dataflow(dataflow: Dataflow, device: torch.device) -> None:
    """Run the whole check once in a process for every dataflow and device.

    A second on a CPU, and on a GPU what the compilation of its kernels takes.

    Args:
        dataflow: what is checked; equal settings are equal objects.
        device: where.

    Raises:
        Nonconforming: it breaks a promise; the message counts the checks that failed and tells the
            first of them, each with the error and its bound.
    """
    _passed(dataflow, str(device))


@lru_cache(maxsize=256)  # of those that pass: an error is not kept
@torch.no_grad()
def _passed(dataflow: Dataflow, device: str) -> None:
    faults: list[str] = []
    count = 0
    for check in _checks(dataflow, device):
        count += 1
        try:
            check()
        except ValueError:  # refused by name, which is no wrong result
            continue
        except Nonconforming as error:
            faults.append(str(error))
        except Exception as error:  # a compiler's errors have no base of their own
            first = str(error).splitlines()[:1]
            case = check.args[1]  # type: ignore[attr-defined]
            faults.append(": ".join([str(case), type(error).__name__, *first]))
    if faults:
        more = "" if len(faults) <= NAMED else f"; and {len(faults) - NAMED} more"
        raise Nonconforming(
            f"dataflow {dataflow.name!r} fails {len(faults)} of {count} checks on {device}: "
            + "; ".join(faults[:NAMED])
            + more
        )

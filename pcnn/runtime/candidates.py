"""Candidate dataflows of a product: those worth trying, checked and then timed on real maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pcnn.dataflows import Blocked, Dataflow, Reference, SummedBlocks
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.tuning_table import Bucket, Choice, Choices
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels.gemm_blocks import GemmBlocks, default_blocks
from pcnn.kernels.tf32 import tf32_allowed
from pcnn.ops.conformance import Nonconforming, check_dataflow
from pcnn.runtime.layer_calls import LayerCall, LayerProduct
from pcnn.runtime.timing import device_ms

#: Measures a call on a device [ms].
Timer = Callable[..., float]

#: A candidate that takes so many times as long as the best is not tried on further samples.
TOO_SLOW = 1.5

#: Bound on the relative RMS error, by what the operands are rounded to. Half and bfloat16 results
#: are rounded once, at 2^-11 and 2^-8 relative, TF32 operands at 2^-11; float32 sums K x C
#: products; float64 differs from the reference by summation order.
RELATIVE_RMS = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "tf32": 1e-3,
    "float32": 2e-6,
    "float64": 1e-12,
}
#: Error of a float32 sum of n random terms, relative to it, over the root of n.
SUM_ERROR = 1e-8
#: No single element is off by more than this many times the bound times the RMS of the truth.
WORST_OVER_RMS = 50.0


def default_candidates(
    call: LayerCall, product: str, reproducible: bool = False
) -> tuple[Dataflow, ...]:
    """The dataflows that `pcnn.tune` tries by default.

    On a CPU there is one quick dataflow, for float64 on a GPU one that serves it. On a GPU the
    others are tried: implicit GEMM with the blocks that an untuned layer gets and with those that
    differ from them in one setting, and weight-stationary flows. Maps whose slots hold several
    inputs have no tables: there `RowStationary` takes the part of implicit GEMM.
    """
    found = _candidates(call, product, False if reproducible else None)
    return tuple(one for one in found if one.deterministic or not reproducible)


def _candidates(call: LayerCall, product: str, sections: bool | None) -> tuple[Dataflow, ...]:
    if call.device.type != "cuda":
        return (Blocked() if all(call.kernel_map.edges.one_per_slot) else SummedBlocks(),)
    if call.dtype == torch.float64:
        return (Reference(),)
    if not all(call.kernel_map.edges.one_per_slot):
        several = RowStationary(), WeightStationary(half=False)
        return several if product != "vvor" else several[:1]
    if product == "vvor":
        return (OutputStationary(sections=sections),)
    side = call.c_in // call.groups, call.c_out // call.groups
    c_in, c_out = side[::-1] if product == "transposed" else side
    tiles = -(-call.rows(product) // TILE_ROWS)
    exact = not tf32_allowed()
    usual = default_blocks(c_in, c_out, tiles, call.kernel_map.volume, call.dtype, exact)
    # rows ordered as an untuned layer has them, so that it can use what is found
    cuts = (None, *neighbours(usual))
    return *(OutputStationary(blocks, sections) for blocks in cuts), WeightStationary()


def neighbours(blocks: GemmBlocks) -> Iterator[GemmBlocks]:
    """Blocks that differ from others in one setting; a kernel has to be compiled for each."""
    yield replace(blocks, rows=64 if blocks.rows > 64 else 128)
    if blocks.channels_out > 32:
        yield replace(blocks, channels_out=blocks.channels_out // 2)
    if blocks.channels_in > 32:
        yield replace(blocks, channels_in=blocks.channels_in // 2)
    yield replace(blocks, split=blocks.split // 2 if blocks.split > 1 else 2)
    yield replace(blocks, warps=8 if blocks.warps < 8 else 4)


def disagreement(result: Tensor, truth: Tensor, dtype: str, terms: int = 0) -> str | None:
    """How a result disagrees with its float64 truth, ``None`` if its dtype explains the error."""
    if result.shape != truth.shape:
        return f"has the shape {tuple(result.shape)} instead of {tuple(truth.shape)}"
    result = result.detach().double()
    if not bool(torch.isfinite(result).all()):
        return "is not finite"
    if not truth.numel():
        return None
    bound = RELATIVE_RMS[dtype]
    if dtype != "float64":
        bound += SUM_ERROR * terms**0.5
    scale = truth.square().mean().sqrt().item()
    error = result - truth
    rms, worst = error.square().mean().sqrt().item(), error.abs().max().item()
    if rms > bound * scale or worst > WORST_OVER_RMS * bound * scale:
        return (
            f"is off by {rms:.2e} (RMS) and {worst:.2e} (worst) at a scale of {scale:.2e}; the "
            f"bounds for {dtype} are {bound * scale:.2e} and {WORST_OVER_RMS * bound * scale:.2e}"
        )
    return None


@dataclass(frozen=True)
class Outcome:
    """How the candidates for one product did."""

    ms: Mapping[Dataflow, float]  # time of those that were right on every sample
    refused: Mapping[Dataflow, str | None] = field(default_factory=dict)  # why the others were not

    def choices(self) -> Choices:
        """The quickest dataflow for each set of layouts, quickest first."""
        best: dict[tuple[tuple[str, ...], tuple[str, ...]], Choice] = {}
        for dataflow, ms in sorted(self.ms.items(), key=lambda one: one[1]):
            best.setdefault((dataflow.needs, dataflow.needs_weight_grad), Choice(dataflow, ms))
        return tuple(best.values())


def compare(
    calls: Sequence[LayerCall],
    product: str,
    candidates: Iterable[Dataflow],
    *,
    inference: bool = False,
    repeats: int = 9,
    whole: bool = False,
    timed: Timer | None = None,
) -> Outcome:
    """Check and time candidates for one product of a layer.

    A candidate computes the product of random operands on every call's own kernel map. Its result
    is compared with float64 before its time counts, and again afterwards: a race shows rarely.
    """
    alive = dict.fromkeys(candidates, 0.0)
    refused: dict[Dataflow, str | None] = {}
    if whole and calls:
        refused |= _nonconforming(alive, calls[0].device)
        alive = {dataflow: ms for dataflow, ms in alive.items() if dataflow not in refused}
    for call in calls:
        operands = LayerProduct(call, product, inference)
        for dataflow in list(alive):
            ms = _checked_ms(operands, dataflow, repeats, timed or device_ms)
            if isinstance(ms, str):
                refused[dataflow] = ms
                del alive[dataflow]
            else:
                alive[dataflow] += ms
        # the best of each set of layouts stays: other products may have to read the same
        stay = {choice.dataflow for choice in Outcome(alive).choices()}
        limit = TOO_SLOW * min(alive.values(), default=0.0)
        for dataflow in [one for one, ms in alive.items() if ms > limit and one not in stay]:
            refused[dataflow] = None
            del alive[dataflow]
    aside = [dataflow for dataflow, why in refused.items() if why is None]
    if not alive and aside:  # the quicker ones are wrong on a later sample
        how: dict[str, Any] = {"inference": inference, "repeats": repeats, "timed": timed}
        outcome = compare(calls, product, aside, **how)
        wrong = {dataflow: why for dataflow, why in refused.items() if why is not None}
        return Outcome(outcome.ms, {**wrong, **outcome.refused})
    if not alive:
        reasons = "; ".join(f"{one.name}: {why}" for one, why in refused.items() if why)
        raise RuntimeError(f"no dataflow computes this layer's {product} product: {reasons}")
    return Outcome({dataflow: ms / len(calls) for dataflow, ms in alive.items()}, refused)


def _nonconforming(candidates: Iterable[Dataflow], device: torch.device) -> dict[Dataflow, str]:
    """Why candidates do not pass their whole check, of those that do not."""
    found = {}
    for dataflow in candidates:
        try:
            check_dataflow(dataflow, device)
        except Nonconforming as error:
            found[dataflow] = str(error)
    return found


def _checked_ms(
    operands: LayerProduct, dataflow: Dataflow, repeats: int, timed: Timer
) -> float | str:
    """Median time [ms], or what is wrong with the candidate."""
    device, truth, terms = operands.call.device, operands.truth, operands.terms
    dtype = operands.call.signature(operands.name).dtype
    try:
        run = operands.prepared(dataflow)
        # freed memory is handed out next: it must not hold right values of the last candidate
        torch.full(truth.shape, math.nan, dtype=operands.out_dtype, device=device)
        wrong = disagreement(run(), truth, dtype, terms)
        if wrong:
            return wrong
        ms = timed(run, device, repeats=repeats)
        wrong = disagreement(run(), truth, dtype, terms)
    except Exception as error:  # compilers have classes of their own; the reason is kept
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return wrong or ms


def mean_bucket(calls: Sequence[LayerCall], product: str) -> Bucket:
    """The size under which a decision about several calls is kept: geometric means."""
    rows = [max(1, call.rows(product)) for call in calls]
    pairs = [call.pairs_per_row(product) for call in calls]
    size = math.exp(sum(map(math.log, rows)) / len(rows))
    return Bucket.of(size, sum(pairs) / len(pairs))


def groups_of(
    calls: Mapping[str, Sequence[LayerCall]],
    own: Mapping[str, tuple[Dataflow, ...]] | None = None,
) -> Iterator[list[str]]:
    """Names of the layers that compute the same: equal maps, channels and dtypes, call by call."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, several in calls.items():
        groups.setdefault((*several, (own or {}).get(name)), []).append(name)
    yield from groups.values()

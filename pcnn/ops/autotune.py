"""The quickest dataflow for a product: candidates are checked, then timed, on real kernel maps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from pcnn.dataflows import Dataflow
from pcnn.dataflows.tuning_table import Bucket, Choice, Choices
from pcnn.ops.agreement import disagreement
from pcnn.ops.conformance import Nonconforming
from pcnn.ops.device_time import device_ms
from pcnn.ops.layer_products import LayerCall, Product
from pcnn.ops.whole_check import check_dataflow

#: A candidate that takes so many times as long as the best is not tried on further samples.
HOPELESS = 1.5


@dataclass(frozen=True)
class Outcome:
    """How the candidates for one product did.

    Args:
        ms: time of those that were right on every sample, mean of the calls [ms].
        refused: why the others were not; ``None`` if they were too slow to go on with.
    """

    ms: Mapping[Dataflow, float]
    refused: Mapping[Dataflow, str | None] = field(default_factory=dict)

    def choices(self) -> Choices:
        """The quickest dataflow for each set of layouts, quickest first."""
        best: dict[tuple[tuple[str, ...], tuple[str, ...]], Choice] = {}
        for dataflow, ms in sorted(self.ms.items(), key=lambda one: one[1]):
            best.setdefault((dataflow.needs, dataflow.needs_vvor), Choice(dataflow, ms))
        return tuple(best.values())


def compare(
    calls: Sequence[LayerCall],
    product: str,
    candidates: Iterable[Dataflow],
    *,
    inference: bool = False,
    repeats: int = 9,
    whole: bool = False,
) -> Outcome:
    """Check and time candidates for one product of a layer.

    A candidate computes the product of random operands on every call's own kernel map. Its result
    is compared with float64 before its time counts, and once more afterwards: a race shows rarely.

    Args:
        calls: calls of the layer, one or more a sample.
        product: ``forward``, ``transposed`` or ``vvor``.
        candidates: dataflows to try.
        inference: as in `Product`.
        repeats: timed repeats on every call.
        whole: have every candidate pass its whole check first (`pcnn.ops.whole_check`): of a
            layer's dataflow other products are asked than those that are timed here.

    Raises:
        RuntimeError: no candidate gives right values; the message says what was wrong with each.
    """
    alive = dict.fromkeys(candidates, 0.0)
    refused: dict[Dataflow, str | None] = {}
    if whole and calls:
        refused |= _nonconforming(alive, calls[0].device)
        alive = {dataflow: ms for dataflow, ms in alive.items() if dataflow not in refused}
    for call in calls:
        operands = Product(call, product, inference)
        for dataflow in list(alive):
            ms = _checked_ms(operands, dataflow, repeats)
            if isinstance(ms, str):
                refused[dataflow] = ms
                del alive[dataflow]
            else:
                alive[dataflow] += ms
        # the best of each set of layouts stays: other products may have to read the same
        stay = {choice.dataflow for choice in Outcome(alive).choices()}
        limit = HOPELESS * min(alive.values(), default=0.0)
        for dataflow in [one for one, ms in alive.items() if ms > limit and one not in stay]:
            refused[dataflow] = None
            del alive[dataflow]
    aside = [dataflow for dataflow, why in refused.items() if why is None]
    if not alive and aside:  # what was quicker is wrong on a later sample
        outcome = compare(calls, product, aside, inference=inference, repeats=repeats)
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


def _checked_ms(operands: Product, dataflow: Dataflow, repeats: int) -> float | str:
    """Median time [ms], or what is wrong with the candidate."""
    device, truth, terms = operands.call.device, operands.truth, operands.terms
    dtype = operands.call.signature(operands.name).dtype
    try:
        run = operands.prepared(dataflow)
        # memory that was just freed is handed out next: let it not hold the last one's right values
        torch.full(truth.shape, math.nan, dtype=operands.out_dtype, device=device)
        wrong = disagreement(run(), truth, dtype, terms)
        if wrong:
            return wrong
        ms = device_ms(run, device, repeats=repeats)
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


def groups_of(calls: Mapping[str, Sequence[LayerCall]]) -> Iterator[list[str]]:
    """Names of the layers that compute the same: equal maps, channels and dtypes, call by call."""
    groups: dict[tuple[LayerCall, ...], list[str]] = {}
    for name, own in calls.items():
        groups.setdefault(tuple(own), []).append(name)
    yield from groups.values()

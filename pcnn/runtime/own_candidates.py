"""Candidates of `pcnn.tune` for an engine that follows a paper: that paper's own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pcnn.dataflows import Dataflow, PerProduct
from pcnn.dataflows.hybrid import Hybrid
from pcnn.dataflows.outer_products import OuterProducts
from pcnn.dataflows.products import PRODUCTS
from pcnn.dataflows.tuning_table import Choice, Choices
from pcnn.ops.engine import Engine
from pcnn.ops.engine_settings import EngineSettings
from pcnn.runtime.candidates import compare
from pcnn.runtime.layer_calls import LayerCall
from pcnn.runtime.timing import flowing_ms

#: Settings that a paper searches for a layer, the fixed setting first; ``None`` for settings of an
#: engine that is not one of the package's.
OwnCandidates = Mapping[Dataflow, EngineSettings | None]

#: A setting wins if it takes less than this share of the fixed one's time: less is noise.
WINS = 0.97


def own_candidates(engine: Engine, calls: Sequence[LayerCall]) -> OwnCandidates | None:
    """The settings that a paper searches for a layer; ``None``: its engine is of no such paper."""
    if engine.settings is not None:
        largest = max(calls, key=lambda call: call.kernel_map.triplets)
        sides = (side // largest.groups for side in (largest.c_in, largest.c_out))
        searched = engine.settings.candidates(largest.kernel_map, *sides)
        found: dict[Dataflow, EngineSettings | None] = {}
        for one in searched:
            found.setdefault(one.dataflow, one)
        return found
    flow = engine.dataflow
    parts = flow.parts if isinstance(flow, PerProduct) else (flow,)
    if not all(isinstance(part, Hybrid) for part in parts):
        return None
    (norms,) = calls[0].kernel_map.layout("slot_norms")
    return {Hybrid(threshold): None for threshold in range(int(norms.max()) + 2)}


def own_choices(
    calls: list[LayerCall], own: Sequence[Dataflow], products: Sequence[str]
) -> dict[str, Choices]:
    """Choices for the products of a layer among the candidates of its paper.

    Candidates that read unlike layouts are chosen by product, together with the other layers of
    their map. Those that read the same ones compete for all products together, and the first one
    stays unless another is quicker by more than noise. The host's share counts: some of them take
    many launches.
    """
    if len(own) == 1:
        return {product: (Choice(own[0], 0.0),) for product in products}
    inference = tuple(products) == PRODUCTS[:1]
    times = {
        product: compare(calls, product, own, inference=inference, timed=flowing_ms)
        for product in products
        if not (product == "vvor" and isinstance(own[0], OuterProducts))  # the same in all
    }
    if any(one.needs != own[0].needs for one in own):
        settled = {product: (Choice(own[0], 0.0),) for product in products}
        return settled | {product: found.choices() for product, found in times.items()}
    totals = {
        one: sum(found.ms[one] for found in times.values())
        for one in own
        if all(one in found.ms for found in times.values())
    }
    best = min(totals, key=lambda one: totals[one])
    fixed = totals.get(own[0])
    chosen = best if fixed is None or totals[best] < WINS * fixed else own[0]
    return {
        product: (Choice(chosen, times[product].ms[chosen] if product in times else 0.0),)
        for product in products
    }

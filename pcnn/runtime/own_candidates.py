"""What `pcnn.tune` tries for an engine that follows a paper: that paper's own settings."""

from __future__ import annotations

from collections.abc import Sequence

from pcnn.dataflows import Dataflow, PerProduct
from pcnn.dataflows.hybrid import Hybrid
from pcnn.runtime.layer_calls import LayerCall


def own_candidates(
    flow: Dataflow | PerProduct | None, calls: Sequence[LayerCall]
) -> tuple[Dataflow, ...] | None:
    """The settings that a paper searches for a layer; ``None``: its dataflow is of no such paper.

    Spira (section 5.4): every threshold t of a kernel, from 0, where all slots are sparse, to one
    beyond the largest norm, where all are dense.

    Args:
        flow: of the layer's engine.
        calls: of the layer, one or more.
    """
    parts = flow.parts if isinstance(flow, PerProduct) else (flow,)
    if not all(isinstance(part, Hybrid) for part in parts):
        return None
    (norms,) = calls[0].kernel_map.layout("slot_norms")
    return tuple(Hybrid(threshold) for threshold in range(int(norms.max()) + 2))

"""Where the time of a layer goes: stages of the map, movement of rows, products, the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pcnn.bench.charts import STAGES
from pcnn.bench.layers.layer import Layer, new_map
from pcnn.bench.mapping.maps import split
from pcnn.bench.place import bare
from pcnn.bench.run import Columns, Measure, middle_timeline, part_columns
from pcnn.bench.setting import Setting
from pcnn.bench.trace import Call, KernelTime

#: Parts of a call by the names of its kernels, of torch's operators on a CPU; the first that meets.
PARTS = {
    "gather": re.compile(r"gather|index_select|embedding", re.IGNORECASE),
    "scatter": re.compile(r"scatter|index_add", re.IGNORECASE),
    "products": re.compile(
        r"gemm|cutlass|nvjet|xmma|cublas|splitk|::mm|::bmm|stationary|dense_slots|outer_products",
        re.IGNORECASE,
    ),
}
#: All other kernels: fills, copies, casts, norms.
REST = "rest"


def part_of(name: str) -> str:
    """Part of a call that a kernel belongs to."""
    return next((part for part, words in PARTS.items() if words.search(name)), REST)


def by_part(timeline: Sequence[KernelTime]) -> dict[str, float]:
    """Device time of every part of a call [ms]."""
    sums = dict.fromkeys((*PARTS, REST), 0.0)
    for kernel in timeline:
        sums[part_of(kernel.name)] += kernel.microseconds / 1e3
    return sums


def parts_of(kept: Sequence[str] | None = None, with_map: bool = False) -> Measure:
    """Measurement of a row a part of a `Layer`, read off a trace.

    Args:
        kept: names of parts; ``None``: all of them as one, ``compute``.
        with_map: the stages of the map too.
    """

    def measure(layer: Layer, setting: Setting, count: bool) -> Iterator[Columns]:
        spent: dict[str, float] = {}
        if with_map:
            stages = split(middle_timeline(lambda _: _map_call(layer), setting.where))
            spent = {STAGES[stage]: time for stage, time in stages.items()}
        found = by_part(middle_timeline(layer.calls("layer"), setting.where))
        if kept is None:
            spent["compute"] = sum(found.values())
        yield from part_columns(spent | {part: found[part] for part in kept or ()})

    return measure


def _map_call(layer: Layer) -> Call:
    sites = bare(layer.source)

    def build() -> object:
        built = new_map(layer.engine, sites, layer.kernel)
        return [built.layout(name) for name in layer.dataflow.needs]

    return build

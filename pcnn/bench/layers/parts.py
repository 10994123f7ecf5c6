"""Where the time of a layer goes: stages of the map, movement of rows, products, the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pcnn.bench.charts import STAGES
from pcnn.bench.engines import Entry
from pcnn.bench.layer_shape import LayerShape
from pcnn.bench.layers.layer import (
    Layer,
    layer_row,
    new_map,
    operands_at,
    products_of,
    true_layer,
)
from pcnn.bench.mapping.maps import split
from pcnn.bench.place import Place, bare
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Columns, middle_timeline, part_columns, run
from pcnn.bench.setting import LayersSetting, Setting
from pcnn.bench.trace import Call, KernelTime
from pcnn.bench.verify import check_values

#: Parts of a call by the names of its kernels, of torch's operators on a CPU; the first that meets.
PARTS = {
    "gather": re.compile(r"gather|index_select|embedding", re.IGNORECASE),
    "scatter": re.compile(r"scatter|index_add", re.IGNORECASE),
    "products": re.compile(
        r"gemm|cutlass|nvjet|xmma|cublas|splitk|::mm|::bmm|stationary|dense_slots|outer_products",
        re.IGNORECASE,
    ),
}
#: What none of them meets: fills, copies, casts, norms.
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


def part_rows(
    setting: LayersSetting,
    figure: str,
    entries: Sequence[Entry],
    layers: Sequence[LayerShape],
    kept: Sequence[str] | None = None,
    with_map: bool = False,
) -> Iterator[Row]:
    """Check every layer, then read the time of its parts off a trace.

    Args:
        setting: what is measured, and how.
        figure: name of the figure.
        entries: engines and their settings.
        layers: shapes of the convolutions.
        kept: names of parts; ``None``: all of them as one, ``compute``.
        with_map: the stages of the map too.
    """
    for scene in setting.scenes:
        for shape in layers:
            place = Place.of(scene, shape.kernel, setting.where)
            cases = (
                _case(setting, place, shape, entry, figure, kept, with_map) for entry in entries
            )
            with products_of(setting.dtype_name):
                yield from run(cases, setting)


def _case(
    setting: LayersSetting,
    place: Place,
    shape: LayerShape,
    entry: Entry,
    figure: str,
    kept: Sequence[str] | None,
    with_map: bool,
) -> Case:
    row = layer_row(setting, place, shape, "layer", entry, figure)

    def check() -> Checked:
        operands = operands_at(place, shape, setting.dtype_name)
        layer = Layer(entry[0], place.grid, place.kernel, operands)
        truth = true_layer(place, operands, backward=False)
        return check_values(row, layer.results("layer"), truth), lambda: layer

    def measure(layer: Layer, setting: Setting, count: bool) -> Iterator[Columns]:
        spent: dict[str, float] = {}
        if with_map:
            stages = split(middle_timeline(lambda _: _map_call(layer), setting.where))
            spent = {STAGES[stage]: time for stage, time in stages.items()}
        found = by_part(middle_timeline(layer.calls("layer"), setting.where))
        if kept is None:
            spent["compute"] = sum(found.values())
        yield from part_columns(spent | {part: found[part] for part in kept or ()})

    return Case(row, check, measure)


def _map_call(layer: Layer) -> Call:
    sites = bare(layer.source)

    def build() -> object:
        built = new_map(layer.engine, sites, layer.kernel)
        return [built.layout(name) for name in layer.dataflow.needs]

    return build

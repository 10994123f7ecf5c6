"""Where the time of a layer goes: stages of the map, movement of rows, products, the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from pcnn.bench.charts import STAGES
from pcnn.bench.harness import DIGITS, Call
from pcnn.bench.layers.layer import Layer, new_map, products_of
from pcnn.bench.layers.measured import Entry, Place, configuration_of, identity_of
from pcnn.bench.layers.setting import LayerShape, Setting
from pcnn.bench.mapping.measured import middle_trace
from pcnn.bench.mapping.products import bare
from pcnn.bench.mapping.stages import split
from pcnn.bench.rows import Row
from pcnn.bench.trace import KernelTime, trace
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

#: Timeline of a call to milliseconds a part.
Split = Callable[[Sequence[KernelTime]], dict[str, float]]


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
    setting: Setting,
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
            place = Place.of(scene, shape.kernel, setting.device)
            with products_of(setting.dtype):
                for engine, params in entries:
                    identity = identity_of(setting, place, shape, engine, figure, params)
                    try:
                        parts = _parts(setting, place, shape, (engine, params), kept, with_map)
                    except Exception as error:  # a compiler's errors have no base of their own
                        reason = f"{type(error).__name__}: {error}"
                        left_out = {**params, "left_out": reason}
                        yield Row("layer", **{**identity, "params": left_out})
                        continue
                    for part, spent in parts.items():
                        named = {**params, "part": part}
                        yield Row(
                            "layer",
                            gpu_busy_ms=round(spent, DIGITS),
                            checked=True,
                            **{**identity, "params": named},
                        )


def _parts(
    setting: Setting,
    place: Place,
    shape: LayerShape,
    entry: Entry,
    kept: Sequence[str] | None,
    with_map: bool,
) -> dict[str, float]:
    engine, params = entry
    operands = place.operands(shape, setting.dtype)
    layer = Layer(engine, place.grid, place.kernel, operands)
    configuration = configuration_of(setting, place, shape, engine, params)
    truth = place.truth(operands, backward=False)
    check_values(configuration, layer.results("layer"), truth).admit(configuration)
    parts: dict[str, float] = {}
    if with_map:
        stages = split(_timeline(setting, lambda: _map_call(layer)))
        parts |= {STAGES[stage]: spent for stage, spent in stages.items()}
    calls = layer.calls("layer")
    spent_on = by_part(_timeline(setting, lambda: calls(0)))
    if kept is None:
        return parts | {"compute": sum(spent_on.values())}
    return parts | {part: spent_on[part] for part in kept}


def _map_call(layer: Layer) -> Call:
    sites = bare(layer.source)

    def build() -> object:
        built = new_map(layer.engine, sites, layer.kernel)
        return [built.layout(name) for name in layer.dataflow.needs]

    return build


def _timeline(setting: Setting, prepared: Callable[[], Call]) -> Sequence[KernelTime]:
    return middle_trace([trace(prepared(), setting.device) for _ in range(3)]).timeline

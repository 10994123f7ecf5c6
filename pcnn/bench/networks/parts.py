"""Where the time of a network goes: TorchSparse Fig. 4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pcnn.bench.harness import DIGITS
from pcnn.bench.layers.layer import products_of
from pcnn.bench.layers.parts import by_part
from pcnn.bench.mapping.measured import middle_trace
from pcnn.bench.networks.check import check_network
from pcnn.bench.networks.measured import (
    Entry,
    Setting,
    Standard,
    Variant,
    cells_of,
    configuration_of,
    identity_of,
)
from pcnn.bench.networks.work import Work
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene
from pcnn.bench.trace import Trace, trace

#: What inference from cells does beyond the network on planned input.
MAPPING = "mapping"


def part_rows(
    setting: Setting, figure: str, models: Sequence[str], entries: Sequence[Entry]
) -> Iterator[Row]:
    """Check every network, then read the time of its parts off traces of inference.

    Args:
        setting: what is measured, and how.
        figure: name of the figure.
        models: names of networks.
        entries: engines and their settings.
    """
    for scene in setting.scenes:
        for model in models:
            with products_of(setting.dtype):
                yield from _of_network(setting, figure, scene, Variant(model), entries)


def _of_network(
    setting: Setting, figure: str, scene: Scene, variant: Variant, entries: Sequence[Entry]
) -> Iterator[Row]:
    cells, to_check = cells_of(setting, scene, variant)
    standard = Standard(setting, variant, to_check)
    for engine, params in entries:
        said = {"mode": "infer", **params}
        identity = identity_of(setting, scene, variant, engine, figure, cells)
        try:
            configuration = configuration_of(setting, scene, variant, engine, said)
            work = standard.work(engine, "infer", to_check)
            results = work.results("infer")
            check_network(configuration, results, *standard.results("infer")).admit(configuration)
            work = Work(work.network, cells, work.dtype)
            whole, planned = (_traced(setting, work, mode) for mode in ("infer", "forward"))
        except Exception as error:  # a compiler's errors have no base of their own
            reason = f"{type(error).__name__}: {error}"
            yield Row("network", params={**said, "left_out": reason}, **identity)
            continue
        parts = {MAPPING: max(0.0, whole.busy_ms - planned.busy_ms), **by_part(planned.timeline)}
        for part, spent in parts.items():
            named = {**said, "part": part}
            busy = round(spent, DIGITS)
            yield Row("network", gpu_busy_ms=busy, checked=True, params=named, **identity)


def _traced(setting: Setting, work: Work, mode: str) -> Trace:
    calls = work.calls(mode)
    calls(0)()  # compiles, and fills the allocator
    return middle_trace([trace(calls(0), setting.device) for _ in range(3)])

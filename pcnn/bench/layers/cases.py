"""Layers on scenes, by engines of ours and by installed packages: their cases and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from pcnn.bench.engines import Entry
from pcnn.bench.installed.layer import InstalledLayer
from pcnn.bench.installed.peer import Peer, PeerEntry
from pcnn.bench.layer_shape import LayerShape
from pcnn.bench.layers.layer import (
    BACKWARD,
    Layer,
    Operands,
    floor_ms,
    operands_at,
    products_of,
    true_layer,
)
from pcnn.bench.place import Place
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Measure, run, whole
from pcnn.bench.scenes import GENERATED_MARK
from pcnn.bench.setting import LayersSetting, TypedSetting
from pcnn.bench.verify import check_values
from pcnn.geometry import Kernel
from pcnn.ops.engine import Engine


def layer_rows(
    setting: LayersSetting,
    figure: str,
    entries: Callable[[LayerShape], Sequence[Entry]] | None = None,
    layers: Sequence[LayerShape] | None = None,
    kinds: Sequence[str] | None = None,
    measure: Measure | None = None,
) -> Iterator[Row]:
    """Check, then time, every layer on every scene.

    Args:
        setting: what is measured, and how.
        figure: name of the figure.
        entries: engines and their settings, by layer; ``None``: the setting's engines.
        layers: shapes of the figure; ``None``: the setting's.
        kinds: kinds of rows of the figure; ``None``: the setting's.
        measure: makes rows of a `Layer`; ``None``: its calls are timed.
    """
    own: list[PeerEntry] = [(one, {}) for one in setting.compared]
    for scene in setting.scenes:
        for kernel, wanted in wanted_at(setting, scene.name, layers, kinds).items():
            place = Place.of(scene, kernel, setting.where)
            for shape, names in wanted:
                chosen = entries(shape) if entries else own
                with products_of(setting.dtype_name):
                    cases = layer_cases(setting, figure, place, shape, names, chosen, measure)
                    yield from run(cases, setting)


def wanted_at(
    setting: LayersSetting,
    workload: str,
    layers: Sequence[LayerShape] | None,
    kinds: Sequence[str] | None,
) -> dict[Kernel, list[tuple[LayerShape, list[str]]]]:
    """Layers and kinds to measure on a scene, by kernel; arguments as in `layer_rows`."""
    by_kernel: dict[Kernel, list[tuple[LayerShape, list[str]]]] = {}
    known = None
    if setting.places is not None and layers is None:
        known = setting.places.get(workload.removesuffix(GENERATED_MARK), {})
    for shape in setting.shapes if layers is None else layers:
        chosen = list(setting.kinds if kinds is None else kinds)
        if known is not None:
            chosen = [kind for kind in chosen if kind in known.get(shape, ())]
        if chosen:
            by_kernel.setdefault(shape.kernel, []).append((shape, chosen))
    return by_kernel


def layer_cases(
    setting: TypedSetting,
    figure: str,
    place: Place,
    shape: LayerShape,
    kinds: Sequence[str],
    entries: Sequence[PeerEntry],
    measure: Measure | None = None,
) -> Iterator[Case]:
    """A layer at one place, by all engines and in all kinds; arguments as in `layer_rows`."""
    operands = operands_at(place, shape, setting.dtype_name)
    truth = true_layer(place, operands, any(kind in BACKWARD for kind in kinds))
    columns = {"dtype": setting.dtype_name, "c_in": shape.c_in, "c_out": shape.c_out}
    reached = {"sites": "reached"} if place.grid.downsampling == "reached" else {}
    for engine, params in entries:

        @cache  # of what was made without an error
        def layer(engine: Engine | Peer = engine) -> Layer | InstalledLayer:
            return made_layer(engine, place, operands)

        for kind in kinds:
            floor = None if measure else floor_ms(operands, place.triplets, kind)
            said = {**params, **reached}
            row = place.row(kind, engine.name, figure, said, floor_ms=floor, **columns)

            def check(row: Row = row, layer=layer) -> Checked:  # type: ignore[no-untyped-def]
                made, kind = layer(), row.what
                results = made.results(kind)
                wanted = {name: truth[name] for name in results}
                proof = check_values(row, results, wanted, place.longest)
                return proof, lambda: made if measure else made.calls(kind)

            yield Case(row, check, measure or whole)


def made_layer(engine: Engine | Peer, place: Place, operands: Operands) -> Layer | InstalledLayer:
    """The layer of an engine or of another package.

    Raises:
        CheckFailed: the engine does not pass the whole check of its builder and dataflows.
        ValueError: the package has no such layer, or other output sites.
    """
    if isinstance(engine, Engine):
        return Layer(engine, place.grid, place.kernel, operands)
    return InstalledLayer(engine, place.grid, place.kernel, operands)

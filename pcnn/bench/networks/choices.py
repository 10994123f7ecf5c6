"""Which setting is the quickest for every layer of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from pcnn.bench.conformance import check_dataflow
from pcnn.bench.engines import thresholds
from pcnn.bench.harness import Repeats, gpu_time, same, wall_time
from pcnn.bench.layers.layer import products_of, torch_dtype
from pcnn.bench.layers.parts import by_part
from pcnn.bench.networks.cases import network_row
from pcnn.bench.networks.models import KERNEL_SIZE, make_network
from pcnn.bench.networks.work import Cells
from pcnn.bench.rows import Row
from pcnn.bench.scenes import Scene
from pcnn.bench.setting import NetworksSetting
from pcnn.bench.trace import trace
from pcnn.bench.verify import CheckFailed
from pcnn.dataflows import Dataflow
from pcnn.dataflows.gather_scatter import MINUET, GatherScatter
from pcnn.kernels.row_tiles import tiles_of
from pcnn.ops.engine import resolve
from pcnn.runtime.candidates import disagreement
from pcnn.runtime.layer_calls import LayerCall, LayerProduct, recorded

#: Repeats of a product for a choice.
REPEATS = Repeats(7, 2, 0.5)


def chosen_thresholds(setting: NetworksSetting, figure: str) -> Iterator[Row]:
    """Spira Tables 1 to 3: number of layers by their quickest threshold, products alone.

    No rows elsewhere than on a GPU.
    """
    if setting.where.type != "cuda":
        return
    for scene in setting.scenes:
        for model in setting.models:
            with products_of(setting.dtype_name):
                counts = Counter(
                    _quickest_threshold(setting, call)
                    for _, call in calls_of(setting, scene, model)
                )
            for label, layers in sorted(counts.items()):
                yield _row(setting, scene, figure, model, {"t": label, "layers": layers})


def _quickest_threshold(setting: NetworksSetting, call: LayerCall) -> str:
    size = round(call.kernel_map.volume ** (1 / 3))
    entries = thresholds(max(2, size))
    labels = [f"t = {params['t']}" for _, params in entries]
    labels[0], labels[-1] = "weight-stationary", "output-stationary"
    times = [_product_ms(setting, call, e.dataflows(setting.where)[0]) for e, _ in entries]
    return labels[times.index(min(times))]


def _product_ms(setting: NetworksSetting, call: LayerCall, dataflow: Dataflow) -> float:
    try:
        run = _checked(call, dataflow)
    except ValueError:  # a map that has no such layout
        return float("inf")
    found = gpu_time(same(run), setting.where, REPEATS)
    if found is None:  # the call waits for the device
        return wall_time(same(run), setting.where, REPEATS).median
    return found[0].median


def _checked(call: LayerCall, dataflow: Dataflow) -> Callable[[], Tensor]:
    """The forward product of a call, found to be right.

    Raises:
        CheckFailed: the dataflow is wrong here, or does not pass its whole check.
        ValueError: the dataflow does not serve the map.
    """
    check_dataflow(dataflow, call.device)
    product = LayerProduct(call, "forward")
    run = product.prepared(dataflow)
    dtype = call.signature(product.name).dtype
    wrong = disagreement(run(), product.truth, dtype, product.terms)
    if wrong:
        raise CheckFailed(f"{dataflow.name}, forward product of a layer: it {wrong}")
    return run


def chosen_tiles(setting: NetworksSetting, figure: str) -> Iterator[Row]:
    """Minuet Fig. 20: the quickest tile of gather and scatter, for every layer of MinkUNet42."""
    for scene in setting.scenes:
        with products_of(setting.dtype_name):
            found = calls_of(setting, scene, "minkunet")
            for number, (_, call) in enumerate(found, 1):
                gather = _quickest_tile(setting, call, "gather", tiles_of(call.c_in))
                scatter = _quickest_tile(setting, call, "scatter", tiles_of(call.c_out))
                found_here = {"layer": number, "gather": gather, "scatter": scatter}
                yield _row(setting, scene, figure, "minkunet", found_here)


def _quickest_tile(
    setting: NetworksSetting, call: LayerCall, part: str, tiles: Sequence[int]
) -> int:
    spent: dict[int, float] = {}
    for tile in tiles:
        words: dict[str, Any] = {f"{part}_tile": tile}
        run = _checked(call, GatherScatter(MINUET.grouping, **words))
        spent[tile] = by_part(trace(run, setting.where).timeline)[part]
    return min(spent, key=lambda tile: spent[tile])


def calls_of(setting: NetworksSetting, scene: Scene, model: str) -> list[tuple[str, LayerCall]]:
    """Calls of all layers of a network that read a kernel map, by name, in their order."""
    size, width = KERNEL_SIZE[model], setting.width
    network = make_network(model, resolve("auto"), size, width, setting.where)
    network = network.to(torch_dtype(setting.dtype_name)).eval()
    cells = Cells.of(scene.grid, setting.where)
    x = cells.on(network, backward=False, dtype=torch_dtype(setting.dtype_name))
    return [(name, calls[0]) for name, calls in recorded(network, [x]).items()]


def _row(
    setting: NetworksSetting, scene: Scene, figure: str, model: str, params: Mapping[str, int | str]
) -> Row:
    row = network_row(setting, scene.name, "choice", model, figure, params)
    return replace(row, n=scene.grid.rows)

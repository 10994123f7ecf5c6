"""One choice of layouts for all layers that read a kernel map.

A layout that one layer alone reads must save more time than it takes to make: the layers of a map
are decided together, with the time of their layouts, as TorchSparse++ and Spira tune groups of
layers.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from pcnn.dataflows import Dataflow, PerProduct
from pcnn.dataflows.tuned import place
from pcnn.dataflows.tuning_table import Choice, Choices, MapSize, Names
from pcnn.geometry import KernelMap
from pcnn.runtime.candidates import mean_bucket
from pcnn.runtime.layer_calls import LayerCall

#: Choices for a layer's products, by product; ``forward`` at least.
LayerChoices = Mapping[str, Choices]

#: Layouts that map builders write; all others are derived from them.
WRITTEN = ("table", "masks", "counts", "offsets")

#: Layouts that the geometry sets, about the kernel of a map.
FROM_GEOMETRY = ("kernel_size", "slot_norms")


def layers_by_map(
    calls: Mapping[str, Sequence[LayerCall]], apart: Container[str] = ()
) -> Iterator[list[str]]:
    """Names of the layers that read the same kernel maps, from whichever side."""
    groups: dict[tuple[tuple[int, bool], ...], list[str]] = {}
    for name, own in calls.items():
        views = (call.kernel_map for call in own)
        sides = (
            (id(view.edges), name in apart and view.flipped and not view.symmetric)
            for view in views
        )
        groups.setdefault(tuple(sides), []).append(name)
    yield from groups.values()


def decide(
    layers: Mapping[str, LayerChoices], cost: Callable[[Names], float]
) -> dict[str, dict[str, Choice]]:
    """The choice for every product of every layer of a map.

    Outputs and gradients of features read the same layouts in all layers, gradients of weights
    theirs; of all such combinations the quickest one, the making of the layouts included. Layers
    that have no combination in common are decided one by one.
    """
    reads = _common(layers, ("forward", "transposed"))
    outer = _common(layers, ("vvor",))
    if not reads or not outer:
        if len(layers) > 1:
            return {
                name: own
                for one, choices in layers.items()
                for name, own in decide({one: choices}, cost).items()
            }
        raise ValueError(
            "no two dataflows for output and gradient read the same layouts: give candidates that "
            "serve both"
        )

    def total(setting: tuple[Names, Names]) -> float:
        made = cost(tuple(dict.fromkeys([*setting[0], *setting[1]])))
        return made + sum(
            choice.ms
            for choices in layers.values()
            for choice in _chosen(choices, *setting).values()
        )

    settings = list(itertools.product(reads, outer))
    best = settings[0] if len(settings) == 1 else min(settings, key=total)
    return {name: _chosen(choices, *best) for name, choices in layers.items()}


def _common(layers: Mapping[str, LayerChoices], products: Names) -> list[Names]:
    """Layouts that some choice reads for all these products of all layers; no layouts for none."""
    options = [
        [choice.layouts(product) for choice in found]
        for choices in layers.values()
        for product, found in choices.items()
        if product in products
    ]
    if not options:
        return [()]
    return [names for names in options[0] if all(names in others for others in options)]


def _chosen(choices: LayerChoices, reads: Names, outer: Names) -> dict[str, Choice]:
    return {
        product: min(
            (
                one
                for one in found
                if one.layouts(product) == (outer if product == "vvor" else reads)
            ),
            key=lambda one: one.ms,
        )
        for product, found in choices.items()
    }


def joined(choices: Mapping[str, Choice]) -> Dataflow | PerProduct:
    """The dataflow of a layer, from one for each of its products."""
    forward = choices["forward"].dataflow
    transposed = choices.get("transposed", choices["forward"]).dataflow
    outer = choices.get("vvor", choices["forward"]).dataflow
    if forward == transposed == outer:
        return forward
    return PerProduct(forward, transposed, outer)


def map_size(calls: Sequence[LayerCall]) -> MapSize:
    """The size under which times of layouts are kept, of the maps of a layer's calls."""
    view = calls[0].kernel_map
    side = "symmetric" if view.symmetric else ("forward", "transposed")[view.flipped]
    bucket, (device, triton) = mean_bucket(calls, "forward"), place(calls[0].device)
    return MapSize(
        device,
        triton,
        side,
        _written(view),
        view.volume,
        bucket.log2_rows,
        bucket.log2_pairs,
    )


def _written(view: KernelMap) -> str:
    """The layout that a map's builder wrote, of those that others are derived from."""
    near = KernelMap(view.edges)
    if not (near.has("table") or near.has("pairs")):
        near.layout("table")  # a plan has given it up for its tiles
    return "table" if near.has("table") else "pairs"


def layouts_ms(maps: Iterable[KernelMap], names: Names, repeats: int = 3) -> float:
    """Time to derive layouts from what the builder wrote, mean of the maps [ms].

    From an idle device to a finished layout, since making one may wait for the device.
    """
    views = {id(one.edges): one for one in maps}.values()
    return statistics.fmean(
        statistics.median(_once(view, names) for _ in range(repeats + 1)) for view in views
    )


def _once(view: KernelMap, names: Names) -> float:
    written = (*(WRITTEN if _written(view) == "table" else ("pairs",)), *FROM_GEOMETRY)
    there = view.edges.layouts
    kept = {key: tensors for key, tensors in there.items() if key in {(n, False) for n in written}}
    fresh = KernelMap(replace(view.edges, layouts=kept), view.flipped)
    on_gpu = any(tensor.is_cuda for tensors in kept.values() for tensor in tensors)
    if on_gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for name in names:
        fresh.layout(name)
    if on_gpu:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)

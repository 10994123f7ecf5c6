"""The quickest dataflow for every layer of a network, found on samples before the network is used.

The engines of the papers do the same (Spira 5.4, Minuet 5.2.1, TorchSparse++). There are three
differences: every candidate is checked against float64 first, each product of a layer has a
dataflow of its own, and measurements are kept on disk by device and size.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from torch import nn

from pcnn.console import Console
from pcnn.dataflows import Dataflow, PerProduct
from pcnn.dataflows.products import PRODUCTS
from pcnn.dataflows.settings import described, is_writable
from pcnn.dataflows.tuned import forget
from pcnn.dataflows.tuning_file import read, save, user_path
from pcnn.dataflows.tuning_table import (
    Choice,
    Choices,
    LayoutCosts,
    MapSize,
    Names,
    TuningTable,
)
from pcnn.ops.engine import Engine
from pcnn.ops.engine_settings import EngineSettings
from pcnn.runtime.candidates import compare, default_candidates, groups_of, mean_bucket
from pcnn.runtime.layer_calls import LayerCall, convolutions, inputs, recorded, unwrapped
from pcnn.runtime.network_race import is_quicker
from pcnn.runtime.own_candidates import OwnCandidates, own_candidates, own_choices
from pcnn.runtime.rank_zero import on_rank_zero
from pcnn.runtime.shared_layouts import decide, joined, layers_by_map, layouts_ms, map_size
from pcnn.tensor import SparseTensor


@dataclass(frozen=True)
class TunedLayer:
    """The decision about a layer."""

    name: str  # of the layer in the network
    dataflow: Dataflow | PerProduct  # what it uses from now on
    ms: Mapping[str, float]  # of each product by its dataflow, mean of the samples [ms]
    known: bool = False  # whether the decision was on disk already
    settings: EngineSettings | None = None  # of the layer's engine from now on

    def engine_of(self, engine: Engine) -> Engine:
        """An engine with the decision; its builder stays, which all layers share."""
        return replace(engine, dataflow=self.dataflow, settings=self.settings or engine.settings)

    @classmethod
    def of(cls, name: str, choices: Mapping[str, Choice], known: bool) -> TunedLayer:
        """A layer from a choice for each product; products that were not timed are left out."""
        times = {product: choice.ms for product, choice in choices.items() if choice.ms}
        return cls(name, joined(choices), times, known)

    def __str__(self) -> str:
        """One line."""
        times = ", ".join(f"{product} {ms:.3f} ms" for product, ms in self.ms.items())
        return f"{self.name}: {described(self.dataflow)}" + (f" ({times})" if times else "")


def tune(
    model: nn.Module,
    loader: Iterable[Any],
    samples: int = 5,
    candidates: Sequence[Dataflow] | None = None,
    backward: bool = False,
    *,
    cache: str | Path | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> list[TunedLayer]:
    """Give every convolution layer the dataflow that is quickest on samples of the data.

    Takes minutes on a GPU the first time, most of them for compiling kernels, which stay on disk.
    The network runs on a few samples, without gradients; then, layer by layer, the candidates
    compute its products on the very kernel maps it was called with. One whose values differ from
    float64 by more than its dtype explains cannot win. Layers of one kernel map read the same
    layouts, whose making counts. An engine that follows a paper stays within that paper's settings
    (`own_candidates`): its plan writes any of their layouts in the same launches, and no file keeps
    the decision. There the settings that the engine has stay, unless the whole network is quicker
    with others by more than noise (`is_quicker`). Call it under the autocast that the network will
    run under: operands have the dtype that the layers were seen to use.

    Under `torch.distributed` every rank calls this, outside of training steps; rank 0 measures, and
    all get its decisions.

    Args:
        model: takes a `SparseTensor`; its layers' engines are replaced.
        loader: batches; see `pcnn.runtime.layer_calls.inputs`.
        samples: how many of them.
        candidates: dataflows to try; ``None`` means the engine's own, where it follows a paper
            that searches some, else `default_candidates` of the device. Given
            candidates first pass the whole check of `pcnn.ops.conformance`, and are always timed;
            else decisions on disk are used again.
        backward: whether to choose for gradients too; without, outputs are timed together with the
            norm and ReLU that inference fuses.
        cache: file of decisions; ``None`` means the user's own, which untuned ``auto`` layers
            consult too.
        fresh: time again what is on disk.
        progress: show a progress bar on a terminal.

    Returns:
        The layers that were tuned, in the network's order.

    Raises:
        ValueError: no sample has a site, or nothing to choose from.
        RuntimeError: no candidate computes right values for some layer.
        TypeError: a batch without a sparse tensor.
    """
    network = unwrapped(model)

    def work() -> list[TunedLayer]:
        batches = list(inputs(network, loader, samples))
        calls = recorded(network, batches)
        if not calls:
            raise ValueError(
                "nothing to tune: no sample led to a convolution over a kernel map; give batches "
                "that have sites, and a network with kernels larger than 1"
            )
        path = _path(cache)
        known = TuningTable() if fresh or path is None else read(path)
        tuner = _Tuner(candidates, backward, known, _reproducible(network))
        own = _own(network, calls) if candidates is None else {}
        measured: dict[str, dict[str, Choices]] = {}
        console = Console(stderr=True)
        shown = progress and console.is_terminal
        with Progress(console=console, transient=True, disable=not shown) as bar:
            flows = {name: tuple(one) for name, one in own.items()}
            for names in bar.track(list(groups_of(calls, flows)), description="tuning layers"):
                before, first = len(tuner.made), names[0]
                measured.update(dict.fromkeys(names, tuner.choices(calls[first], flows.get(first))))
                if path and len(tuner.made) > before:  # at once: tuning may be interrupted
                    save(path, tuner.writable())
        decided: dict[str, dict[str, Choice]] = {}
        for names in layers_by_map(calls, () if backward else own):
            derived = functools.partial(tuner.layouts_ms, calls[names[0]])
            cost = _written_anyway if names[0] in own else derived
            decided |= decide({name: measured[name] for name in names}, cost)
        if path and tuner.timed:
            save(path, TuningTable(costs=LayoutCosts(tuner.timed)))
        known_ones = [name for name in calls if name not in own and tuner.known(calls[name])]
        found = [TunedLayer.of(name, decided[name], name in known_ones) for name in calls]
        return _unless_fixed(network, batches, found, own)

    tuned = on_rank_zero(work)
    forget()
    layers = convolutions(network)
    for one in tuned:
        layers[one.name].engine = one.engine_of(layers[one.name].engine)
    return tuned


def _unless_fixed(
    network: nn.Module,
    batches: Sequence[SparseTensor],
    found: list[TunedLayer],
    own: Mapping[str, OwnCandidates],
) -> list[TunedLayer]:
    """Decisions about layers of papers' engines, or what these have where that is as quick."""
    layers = convolutions(network)
    found = [
        replace(one, settings=own[one.name].get(_forward(one.dataflow))) if one.name in own else one
        for one in found
    ]
    others = {
        one.name: one.engine_of(layers[one.name].engine)
        for one in found
        if one.settings is not None and one.settings != layers[one.name].engine.settings
    }
    if not others or is_quicker(network, batches, others):
        return found
    return [
        replace(one, dataflow=kept.dataflow, settings=kept.settings)
        if one.name in others and (kept := layers[one.name].engine).dataflow is not None
        else one
        for one in found
    ]


def _forward(flow: Dataflow | PerProduct) -> Dataflow:
    return flow.forward if isinstance(flow, PerProduct) else flow


def _own(network: nn.Module, calls: Mapping[str, Sequence[LayerCall]]) -> dict[str, OwnCandidates]:
    """Candidates of the layers whose engine follows a paper that searches some."""
    layers = convolutions(network)
    found = {name: own_candidates(layers[name].engine, calls[name]) for name in calls}
    return {name: one for name, one in found.items() if one is not None}


def _written_anyway(_: Names) -> float:
    """Time of layouts that a plan writes in the place of others, in the same launches [ms]."""
    return 0.0


def _reproducible(network: nn.Module) -> bool:
    """True if torch's switch or an engine of a layer asks for identical bits in two runs."""
    asked = any(layer.engine.reproducible for layer in convolutions(network).values())
    return asked or torch.are_deterministic_algorithms_enabled()


def _path(cache: str | Path | None) -> Path | None:
    if cache is not None:
        return Path(cache)
    try:
        return user_path()
    except RuntimeError:  # no home folder to keep decisions in
        return None


class _Tuner:
    """Decides about layers, from the decisions on disk and from measurements."""

    def __init__(
        self,
        candidates: Sequence[Dataflow] | None,
        backward: bool,
        known: TuningTable,
        reproducible: bool,
    ) -> None:
        self._candidates = candidates
        self._products = PRODUCTS if backward else PRODUCTS[:1]
        self._known = known if candidates is None else TuningTable()
        self._reproducible = reproducible
        self.made = TuningTable()
        #: times of layouts that were measured
        self.timed: list[tuple[MapSize, Names, float]] = []

    def choices(
        self, calls: list[LayerCall], own: Sequence[Dataflow] | None = None
    ) -> dict[str, Choices]:
        """Choices for the products of a layer, measured where they are not known."""
        if own is not None:
            offered = [one for one in own if one.deterministic or not self._reproducible]
            return own_choices(calls, offered or own, self._products)
        return {product: self._choices(calls, product) for product in self._products}

    def known(self, calls: list[LayerCall]) -> bool:
        """True if all decisions about a layer were on disk."""
        asked = [one for one in self._products if not self._is_settled(calls, one)]
        keys = [(calls[0].signature(one), mean_bucket(calls, one)) for one in asked]
        return bool(keys) and not _is_shared(calls) and all(self._known.exact(*k) for k in keys)

    def _is_settled(self, calls: list[LayerCall], product: str) -> bool:
        """True if there is one candidate, so that nothing is measured."""
        return self._candidates is None and len(self._offered(calls, product)) == 1

    def _offered(self, calls: list[LayerCall], product: str) -> tuple[Dataflow, ...]:
        if self._candidates is None:
            largest = max(calls, key=lambda call: call.rows(product))
            return default_candidates(largest, product, self._reproducible)
        offered = tuple(
            one for one in self._candidates if one.deterministic or not self._reproducible
        )
        if not offered:
            raise ValueError(
                "no candidate to choose from: give one that is deterministic, which an engine or "
                "torch.use_deterministic_algorithms asks for"
            )
        return offered

    def _choices(self, calls: list[LayerCall], product: str) -> Choices:
        signature, bucket = calls[0].signature(product), mean_bucket(calls, product)
        shared = _is_shared(calls)
        for table in () if shared else (self._known, self.made):
            found = table.exact(signature, bucket)
            known = tuple(
                one for one in found if one.dataflow.deterministic or not self._reproducible
            )
            if known:
                return known
        offered = self._offered(calls, product)
        if self._is_settled(calls, product):
            return (Choice(offered[0], 0.0),)
        inference = self._products == PRODUCTS[:1]
        given = self._candidates is not None
        outcome = compare(calls, product, offered, inference=inference, whole=given)
        choices = outcome.choices()
        kept = tuple(Choice(one.dataflow, round(one.ms, 5)) for one in choices)
        if not shared:
            self.made = self.made.updated(TuningTable([(signature, bucket, kept)]))
        return kept

    def layouts_ms(self, calls: list[LayerCall], names: Names) -> float:
        """Time to make layouts of the maps of a layer's calls [ms], measured if it is not known."""
        size = map_size(calls)
        for costs in (self._known.costs, LayoutCosts(self.timed)):
            known = costs.get(size, names)
            if known is not None:
                return known
        ms = round(layouts_ms([call.kernel_map for call in calls], names), 5)
        self.timed.append((size, names, ms))
        return ms

    def writable(self) -> TuningTable:
        """The measurements of dataflows that a file may name."""
        rows = (
            (signature, bucket, tuple(one for one in choices if is_writable(one.dataflow)))
            for signature, bucket, choices in self.made
        )
        return TuningTable(row for row in rows if row[2])


def _is_shared(calls: Sequence[LayerCall]) -> bool:
    """True if slots of a layer's maps hold several inputs, as on native points."""
    # tables of decisions know sizes and not this, and other dataflows serve such maps: decisions
    # about them are measured every time, and not kept
    return not all(all(call.kernel_map.edges.one_per_slot) for call in calls)

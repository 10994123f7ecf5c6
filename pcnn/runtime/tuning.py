"""The quickest settings of every layer, found on samples by the time of the whole network.

The engines of the papers search their settings too (Spira 5.4, Minuet 5.2.1, TorchSparse 4.2.3).
Layers of equal sizes are one coordinate: its settings are tried one after another while all other
layers stay as they are, and one that saves more than noise stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor, nn

from pcnn.console import Console
from pcnn.graphs.outputs import check_agreement, features_of
from pcnn.nn.conv import Convolution, convolutions
from pcnn.ops.engine import Engine
from pcnn.ops.engine_settings import EngineSettings, LayerSizes
from pcnn.runtime.observed import ObservedCall, evaluation, inputs, run_observed
from pcnn.runtime.timing import device_ms
from pcnn.tensor import SparseTensor

#: Share of the network's time that settings have to save: less is noise.
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class TunedLayer:
    """What a layer uses from now on, where that is not what it used."""

    name: str  # of the layer in the network
    settings: EngineSettings  # of its engine
    before: EngineSettings  # that it had
    gain: float  # share of the network's time that it saves

    def __str__(self) -> str:
        """One line."""
        changed = self.settings.changed(self.before)
        words = ", ".join(f"{name}={value}" for name, value in changed.items())
        return f"{self.name}: {words} (the network {100 * self.gain:.1f} % quicker)"


def tune(
    model: nn.Module,
    loader: Iterable[Any],
    samples: int = 3,
    backward: bool = False,
    *,
    progress: bool = True,
) -> list[TunedLayer]:
    """Give every convolution layer the settings with which the network is quickest.

    Takes minutes on a GPU, most of them for compiling kernels, which stay on disk. ``auto`` layers
    are tried with other cuts of their implicit GEMM, those of a paper's engine with the settings
    that the paper searches. What gives other outputs than the usual settings, or fails, is left
    out. A network whose engines leave all launches to the device is timed there, with its maps in
    place; another one from sites alone. Call it under the autocast that it will run under. Of
    several processes each tunes for itself: tune in one, and give the others its settings
    (``engine.layers``).

    Args:
        model: takes a `SparseTensor`; its layers' engines are replaced.
        loader: batches: a `SparseTensor`, an object with one as ``tensor``, or a tuple that begins
            with either.
        samples: how many of them.
        backward: whether backward is timed too.
        progress: show a progress bar on a terminal.

    Returns:
        The layers whose settings have changed, in the network's order.

    Raises:
        ValueError: no sample has a site.
        TypeError: a batch without a sparse tensor.
    """
    batches = list(inputs(model, loader, samples))
    if not batches:
        raise ValueError("nothing to tune: no sample has a site")
    race = _Race(model, batches, backward)
    console = Console(stderr=True)
    hidden = not (progress and console.is_terminal)
    with Progress(console=console, transient=True, disable=hidden) as bar:
        for names, sizes in bar.track(_groups(model, batches[0]), description="tuning layers"):
            race.settle(names, sizes)
    order = list(convolutions(model))
    return sorted(race.changed, key=lambda one: order.index(one.name))


def _groups(network: nn.Module, x: SparseTensor) -> list[tuple[list[str], LayerSizes]]:
    """Names of the layers of equal sizes and engines, and these sizes."""
    groups: dict[tuple[object, ...], tuple[list[str], LayerSizes]] = {}

    def observe(call: ObservedCall) -> None:
        kernel_map, layer = call.kernel_map, call.layer
        if kernel_map is None or not kernel_map.triplets or layer.engine.settings is None:
            return
        channels = layer.in_channels // layer.groups, layer.out_channels // layer.groups
        dtype, octave = call.out.features.dtype, round(math.log2(kernel_map.n_out))
        side = kernel_map.volume, kernel_map.flipped and not kernel_map.symmetric, octave
        sizes = LayerSizes(kernel_map, *channels, dtype, x.device)
        key = layer.engine, *channels, layer.groups, dtype, *side
        groups.setdefault(key, ([], sizes))[0].append(call.name)

    run_observed(network, x, observe)
    return list(groups.values())


class _Race:
    """A network whose layers get settings for as long as it becomes quicker."""

    def __init__(self, network: nn.Module, batches: Sequence[SparseTensor], backward: bool) -> None:
        self._network, self._batches, self._backward = network, batches, backward
        self._layers: dict[str, Convolution] = convolutions(network)
        self._on_device = all(one.engine.dataflow is None for one in self._layers.values())
        self._wanted = [self._outputs(x) for x in batches]
        self._best: float | None = None
        self.changed: list[TunedLayer] = []

    def settle(self, names: Sequence[str], sizes: LayerSizes) -> None:
        """Try the settings of layers of equal sizes, and keep the best."""
        own = self._layers[names[0]].engine
        before = own.settings
        assert before is not None
        kept, saved = own, 0.0
        for settings in before.candidates(sizes):
            trial = replace(own, dataflow=settings.parts()[1], settings=settings)
            if settings == before or not _is_allowed(trial):
                continue
            if self._best is None:  # the first of all: kernels of the usual settings are compiled
                self._best = self._ms()
            ms = self._tried(names, trial)
            if ms is not None and ms < (1 - LEAST_GAIN) * self._best:
                kept, saved, self._best = trial, saved + 1 - ms / self._best, ms
        self._give(names, kept)
        if kept is not own and kept.settings is not None:
            self.changed += [TunedLayer(name, kept.settings, before, saved) for name in names]

    def _give(self, names: Sequence[str], engine: Engine) -> None:
        for name in names:
            self._layers[name].engine = engine

    def _tried(self, names: Sequence[str], engine: Engine) -> float | None:
        """Time with an engine [ms]; ``None``: its outputs are others, or it fails."""
        self._give(names, engine)
        try:
            for x, wanted in zip(self._batches, self._wanted, strict=True):
                check_agreement(self._outputs(x), wanted)
            return self._ms()
        except Exception:  # compilers have classes of their own, and most blocks fit no device
            return None

    @torch.no_grad()
    def _outputs(self, x: SparseTensor) -> list[Tensor]:
        with evaluation(self._network):
            return [part.clone() for part in features_of(self._network(x))]

    def _ms(self) -> float:
        """Time of the network on all batches [ms]."""
        waits, runs = not self._on_device, [partial(self._run, x) for x in self._batches]
        with evaluation(self._network), torch.set_grad_enabled(self._backward):
            return sum(device_ms(run, self._batches[0].device, waits=waits) for run in runs)

    def _run(self, x: SparseTensor) -> None:
        if not self._on_device:  # levels, maps and layouts are built in every run
            x = SparseTensor(x.features, replace(x.geometry))  # type: ignore[type-var]
        out = self._network(x)
        if self._backward:
            sum(part.float().square().mean() for part in features_of(out)).backward()  # type: ignore[union-attr]
            self._network.zero_grad(set_to_none=True)


def _is_allowed(engine: Engine) -> bool:
    """True if an engine's dataflow gives identical bits in two runs, or need not."""
    asked = engine.reproducible or torch.are_deterministic_algorithms_enabled()
    return not asked or engine.dataflow is None or engine.dataflow.deterministic

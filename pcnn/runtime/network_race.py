"""Whether a whole network is quicker with other engines of its layers, by the clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from pcnn.ops.engine import Engine
from pcnn.runtime.layer_calls import convolutions, evaluation
from pcnn.tensor import SparseTensor

#: Rounds in which both sides run in turn, and timed runs of a side in a round.
ROUNDS, RUNS = 7, 3

#: Share of the time that a gain has to exceed, whatever the spread.
LEAST_GAIN = 0.02


def is_quicker(
    network: nn.Module, batches: Sequence[SparseTensor], others: Mapping[str, Engine]
) -> bool:
    """True if a network with other engines beats itself by more than noise.

    Forward in evaluation mode, without gradients, from sites alone: levels, maps and layouts are
    built in every run. Both sides take turns, so that a clock that changes changes both. Engines
    are as before afterwards.
    """
    layers = convolutions(network)
    own = {name: layers[name].engine for name in others}
    times: dict[bool, list[float]] = {False: [], True: []}
    try:
        with evaluation(network), torch.no_grad():
            for _ in range(ROUNDS):
                for changed, engines in ((False, own), (True, others)):
                    for name, engine in engines.items():
                        layers[name].engine = engine
                    _run(network, batches)  # traces the plan, compiles kernels
                    times[changed].append(min(_run(network, batches) for _ in range(RUNS)))
    finally:
        for name, engine in own.items():
            layers[name].engine = engine
    before, after = (statistics.median(times[changed]) for changed in (False, True))
    low, _, high = statistics.quantiles(times[False], n=4)
    return before - after > max(LEAST_GAIN * before, high - low)


def _run(network: nn.Module, batches: Sequence[SparseTensor]) -> float:
    """Time of a network on copies of its inputs that know their sites alone [s]."""
    fresh = [SparseTensor(x.features, replace(x.geometry)) for x in batches]  # type: ignore[type-var]
    on_gpu = any(x.features.is_cuda for x in fresh)
    if on_gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for x in fresh:
        network(x)
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - start

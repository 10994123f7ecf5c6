"""Callbacks around training steps: checkpoints, exact resume, figures and pictures."""

from pcnn.callbacks.checkpoint import Checkpoint, Stopped
from pcnn.callbacks.finite_steps import FiniteSteps
from pcnn.callbacks.pictures import Pictures
from pcnn.callbacks.progress import TrainingProgress
from pcnn.callbacks.rng_state import RngState
from pcnn.callbacks.stop import StopOnSignal, StopSignals, stop_signals
from pcnn.callbacks.throughput import Throughput
from pcnn.callbacks.warm_up import WarmUp
from pcnn.callbacks.weight_average import WeightAverage

__all__ = [
    "Checkpoint",
    "FiniteSteps",
    "Pictures",
    "RngState",
    "StopOnSignal",
    "StopSignals",
    "Stopped",
    "Throughput",
    "TrainingProgress",
    "WarmUp",
    "WeightAverage",
    "stop_signals",
]

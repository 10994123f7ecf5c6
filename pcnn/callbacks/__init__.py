"""Callbacks around training steps: checkpoints, exact resume, figures and pictures."""

from pcnn.callbacks.checkpoint import Checkpoint, Stopped
from pcnn.callbacks.finite_steps import FiniteSteps
from pcnn.callbacks.pair_media import PairPicture, WandbPairs
from pcnn.callbacks.progress import TrainingProgress
from pcnn.callbacks.rng_state import RngState
from pcnn.callbacks.scan_picture import PredictionPicture
from pcnn.callbacks.stop import StopOnSignal, StopSignals, stop_signals
from pcnn.callbacks.throughput import Throughput
from pcnn.callbacks.wandb_iou_table import WandbMedia
from pcnn.callbacks.warm_up import WarmUp
from pcnn.callbacks.weight_average import WeightAverage

__all__ = [
    "Checkpoint",
    "FiniteSteps",
    "PairPicture",
    "PredictionPicture",
    "RngState",
    "StopOnSignal",
    "StopSignals",
    "Stopped",
    "Throughput",
    "TrainingProgress",
    "WandbMedia",
    "WandbPairs",
    "WarmUp",
    "WeightAverage",
    "stop_signals",
]

"""Checkpoints of runs and exported networks as files, read without Lightning."""

from pcnn.checkpoints.checkpoint_file import (
    CheckpointError,
    RunCheckpoint,
    load_config,
    load_weights,
    read_checkpoint,
)

__all__ = ["CheckpointError", "RunCheckpoint", "load_config", "load_weights", "read_checkpoint"]

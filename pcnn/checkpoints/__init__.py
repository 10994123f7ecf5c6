"""Checkpoints of runs and exported networks as files, read without Lightning."""

from pcnn.checkpoints.checkpoint_file import CheckpointError, RunCheckpoint, read_checkpoint

__all__ = ["CheckpointError", "RunCheckpoint", "read_checkpoint"]

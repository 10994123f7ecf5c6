"""Random numbers that a resumed run draws exactly as the uninterrupted one would have."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer

from pcnn.ranges import Seed


def step_seed(seed: int, step: int, rank: int) -> int:
    """The 63-bit seed of a training step, a hash of its three arguments."""
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_globals(seed: int) -> None:
    """Seed the global generators of python, numpy and torch (CPU and CUDA)."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)  # noqa: NPY002 (the global one)
    # not `torch.manual_seed`, which notes a stack trace for every kind of device that is not in use
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)


class RngState(Callback):
    """Make every random draw of a step a function of (seed, step, rank), across interruptions.

    The global generators are seeded at the start of every batch, so that dropout and the like do
    not depend on what happened between steps: a validation, a new iterator of a loader, a picture.
    """

    def __init__(self, seed: Seed) -> None:
        super().__init__()
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        step = trainer.fit_loop.total_batch_idx
        seed_globals(step_seed(self.seed, step, trainer.global_rank))

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seed = state_dict["seed"]

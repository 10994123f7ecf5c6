"""Random numbers that a resumed run draws exactly as the uninterrupted one would have."""

from __future__ import annotations

import hashlib
import random
import secrets
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pcnn.ranges import Seed


def capture_rng() -> dict[str, Any]:
    """Return the states of the global generators of python, numpy and torch as tensors.

    Tensors and plain numbers only, so that ``torch.load(weights_only=True)`` takes them (numpy's
    own state is an array, which it refuses).
    """
    _, words, gauss = random.getstate()
    state: Any = np.random.get_state()  # noqa: NPY002 (the global one)
    _, key, position, has_gauss, cached = state
    return {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": gauss,
        "numpy": torch.tensor([*key.tolist(), position], dtype=torch.int64),
        "numpy_has_gauss": int(has_gauss),
        "numpy_gauss": float(cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_rng(state: dict[str, Any]) -> None:
    """Set the global generators to what `capture_rng` returned.

    CUDA states are restored only where as many devices are visible as when they were captured: on
    another machine there is no state that would mean the same.
    """
    random.setstate((3, tuple(state["python"].tolist()), state["python_gauss"]))
    *key, position = state["numpy"].tolist()
    words = np.array(key, dtype=np.uint32)
    np.random.set_state(  # noqa: NPY002 (the global one)
        ("MT19937", words, position, state["numpy_has_gauss"], state["numpy_gauss"])
    )
    torch.set_rng_state(state["torch"].cpu())
    cuda: list[Tensor] = [device_state.cpu() for device_state in state["cuda"]]
    if cuda and torch.cuda.is_available() and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(cuda)


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return the 63-bit seed of a training step, a hash of its three arguments."""
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
    """Make every random draw of training a function of (seed, step, rank), across interruptions.

    The global generators are seeded at the start of every batch, so that dropout and the like do
    not depend on what happened between steps: a validation, a new iterator of a loader, a picture.
    Their states go into the checkpoint and come back when training starts, behind the loaders and
    the sanity check, which draw: so a data set that draws in the main process goes on too. These
    are rank 0's; the seeding makes other ranks right from the first step on.
    """

    def __init__(self, seed: Seed | None = None) -> None:
        super().__init__()
        self.seed = seed
        self._restored: dict[str, Any] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Agree on a seed when none was given; a checkpoint loaded later brings its own."""
        if self.seed is None:
            self.seed = trainer.strategy.broadcast(secrets.randbits(32))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the generators of a resumed run."""
        if self._restored is not None and trainer.is_global_zero:
            restore_rng(self._restored)
        self._restored = None

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        """Seed the generators for this batch."""
        assert self.seed is not None  # set by `setup`
        step = trainer.fit_loop.total_batch_idx
        seed_globals(step_seed(self.seed, step, trainer.global_rank))

    def state_dict(self) -> dict[str, Any]:
        """Return seed and generator states for the checkpoint."""
        return {"seed": self.seed, **capture_rng()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training starts; the seed is the checkpoint's from now on."""
        self.seed = state_dict["seed"]
        self._restored = state_dict

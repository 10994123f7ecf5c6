"""End the own process at a batch, once, as a power cut would."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class KillOnce(Callback):
    """A signal before optimiser step `step`, unless `marker` exists, which this creates.

    SIGKILL goes to this process, any other to its whole group, as a terminal sends Ctrl-C; where
    there are several ranks, to the first one alone.
    """

    def __init__(self, step: int, marker: str, signum: int = signal.SIGKILL) -> None:
        super().__init__()
        self.step, self.marker, self.signum = step, Path(marker), signum

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        here = trainer.global_step == self.step and trainer.is_global_zero
        if here and not self.marker.exists():
            self.marker.touch()
            if self.signum == signal.SIGKILL or trainer.world_size > 1:
                os.kill(os.getpid(), self.signum)
            else:
                os.killpg(0, self.signum)

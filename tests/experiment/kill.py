"""End the own process at a batch, once, as a power cut would."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class KillOnce(Callback):
    """SIGKILL before optimiser step `step`, unless `marker` exists, which this creates."""

    def __init__(self, step: int, marker: str) -> None:
        super().__init__()
        self.step, self.marker = step, Path(marker)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.step and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

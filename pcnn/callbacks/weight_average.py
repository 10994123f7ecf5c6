"""Exponential moving average of a network's weights, evaluated and kept in their place."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from pcnn.ranges import PartialShare


class MovingAverage(AveragedModel):
    """``a_0 = w_0``, ``a_n = d_n a_(n-1) + (1 - d_n) w_n`` with ``d_n = min(decay, (1+n)/(10+n))``.

    The decay grows from small ones, so that a short training is not averaged with its beginning.
    Whole numbers (of batches that a norm has seen) are taken over as they are. Torch's own way
    reads the number of updates from the device at every step, for which the host would wait.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(model, use_buffers=True)
        self.decay = decay

    def _apply(self, function: Any, recurse: bool = True) -> MovingAverage:
        super()._apply(function, recurse)
        self.n_averaged = self.n_averaged.cpu()  # counts on the host
        return self

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Take the weights and buffers of another state of the model into the average."""
        updates = int(self.n_averaged)
        decay = min(self.decay, (1 + updates) / (10 + updates)) if updates else 0.0
        groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for own, current in zip(tensors_of(self.module), tensors_of(model), strict=True):
            if own.is_floating_point():
                averages, values = groups.setdefault(own.dtype, ([], []))
                averages.append(own)
                values.append(current)
            else:
                own.copy_(current)
        for averages, values in groups.values():
            torch._foreach_lerp_(averages, values, 1.0 - decay)
        self.n_averaged += 1


class WeightAverage(WeightAveraging):
    """Evaluate, and keep as the weights of every checkpoint, a moving average of the weights.

    The average is the `state_dict` of a checkpoint; the weights that go on training lie beside it.

    Source: Polyak averaging as in Tarvainen and Valpola, "Mean teachers", 2017.
    """

    def __init__(self, decay: PartialShare | None = None) -> None:
        super().__init__()
        self.decay = decay

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and self.decay is not None:
            self._average_model = MovingAverage(pl_module, self.decay)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._average_model is not None:
            self._average_model.to(pl_module.device)

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """After every optimiser step, where there is an average."""
        return step_idx is not None and self._average_model is not None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the weights as they are: the last checkpoint must be one to go on from."""

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put the average in the place of the weights, and these beside it."""
        if self._average_model is not None:
            super().on_save_checkpoint(trainer, pl_module, checkpoint)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """In a training go on with both; an evaluation takes the average for the weights."""
        if self._average_model is not None:
            super().on_load_checkpoint(trainer, pl_module, checkpoint)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forget the average: what is evaluated from now on comes from checkpoints."""
        self._average_model = None


def tensors_of(module: nn.Module) -> itertools.chain[Tensor]:
    """Parameters, then buffers."""
    return itertools.chain(module.parameters(), module.buffers())

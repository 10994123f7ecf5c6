"""A step whose loss is not a number teaches nothing."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer

from pcnn.callbacks.lightning_internals import logged_step
from pcnn.errors import NotFiniteError, RunWarning
from pcnn.messages import counted
from pcnn.ranges import Count
from pcnn.tasks.fused_optimizer import leaves_steps_out

#: Norm of a parameter's gradient that no training has: steps of it end in NaN, or in weights of no
#: use. Batch norms over two rows that are nearly equal, layer upon layer, come to 1e18.
LARGEST = 1e8


class FiniteSteps(Callback):
    """Take a step's gradients out when any of them is NaN, infinite, or absurdly large.

    Running statistics of norms that broke go back to what they were at the last look. The host
    waits for the device at a look alone, every `every_n_steps` steps: a warning tells of new broken
    steps, and loggers get ``train/broken_steps``. Training ends when no loss was finite in
    `patience` batches in a row. Steps that the scaler of float16 leaves out are not counted.
    """

    def __init__(self, every_n_steps: Count = 25, patience: Count = 100) -> None:
        super().__init__()
        self.every_n_steps = every_n_steps
        self.patience = patience
        # [3] on the device: broken losses, of these in a row, finite gradients that are too large
        self._counts = torch.zeros(3)
        self._losses: list[Tensor] = []  # not counted yet
        self._norms: list[Tensor] = []  # the largest norm of each step, not counted yet
        self._kept: dict[str, Tensor] = {}  # running statistics at the last look
        self._told = 0
        self._looked_at = -1
        self._first_step = 0
        self._resumed: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the counts, and the statistics that broken ones would be replaced with."""
        self._count()
        return {
            "counts": self._counts.cpu(),
            "told": self._told,
            "first_step": self._first_step,
            "kept": {name: value.cpu() for name, value in self._kept.items()},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resumed = state_dict

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to count, or go on with the counts of a resumed run."""
        state, self._resumed = self._resumed, None
        self._looked_at = trainer.global_step
        self._kept = {name: value.clone() for name, value in running(pl_module).items()}
        self._losses, self._norms = [], []
        if state is None:
            self._counts = torch.zeros(3, device=pl_module.device)
            self._told, self._first_step = 0, trainer.global_step
            return
        self._counts = state["counts"].to(pl_module.device)
        self._told, self._first_step = state["told"], state["first_step"]
        for name, value in state["kept"].items():
            self._kept[name].copy_(value)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Take out gradients that are not finite or too large, all of them together."""
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            return  # it has looked already, and leaves the step out
        gradients = [
            parameter.grad
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        if not gradients:
            return
        largest = torch.stack(torch._foreach_norm(gradients)).max()  # NaN where one is
        self._norms.append(largest)
        bad = ~(largest < LARGEST)  # NaN is below nothing
        if leaves_steps_out(optimizer):
            optimizer.found_inf = bad.float()  # type: ignore[attr-defined]  # read in its step
            return
        for gradient in gradients:
            gradient.masked_fill_(bad, 0)  # a product would leave NaN what is NaN

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any
    ) -> None:
        """Count a loss that is not finite; look at the counter now and then."""
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        if isinstance(loss, Tensor):
            self._losses.append(loss.detach().clone())  # a graph writes the next one there
        step = trainer.global_step
        # last.ckpt is written behind this, at steps of which many are such ones
        if step % self.every_n_steps == 0 and step != self._looked_at:
            self._look(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validation works with running statistics: look first."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._look(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._look(trainer, pl_module)
        steps = trainer.global_step - self._first_step
        if self._told * 2 > steps:
            raise NotFiniteError(
                f"{self._told} of {counted(steps, 'step')} were left out, as their loss or "
                "gradients were NaN, infinite or absurdly large: the network has not been trained."
                "\npossible: a lower task.optimizer.lr"
            )

    @torch.no_grad()
    def _count(self) -> None:
        """Add what was noted to the counts; nothing waits."""
        if self._norms:
            norms = torch.stack(self._norms)
            self._counts[2] += (torch.isfinite(norms) & ~(norms < LARGEST)).sum()
        if self._losses:
            good = torch.isfinite(torch.stack(self._losses))
            place = torch.arange(1, len(good) + 1, device=good.device)
            last = (place * good).max()  # place of the last good one; 0: there is none
            self._counts[0] += (~good).sum()
            self._counts[1] = self._counts[1] * (last == 0) + len(good) - last
        self._losses, self._norms = [], []

    @torch.no_grad()
    def _look(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._looked_at = trainer.global_step
        self._count()
        total, in_a_row, large = (int(value) for value in self._counts.tolist())
        statistics = running(pl_module)
        # they may break under a loss that is finite: one of nothing is 0, whatever the features are
        sums = list(torch._foreach_norm(list(statistics.values()), 1)) if statistics else []
        good = torch.isfinite(torch.stack(sums)).tolist() if statistics else []  # one wait
        targets, sources = [], []
        for (name, value), whole in zip(statistics.items(), good, strict=True):
            targets.append(self._kept[name] if whole else value)
            sources.append(value if whole else self._kept[name])
        if targets:
            torch._foreach_copy_(targets, sources)
        if total + large != self._told:
            rank_zero_warn(
                f"{counted(total + large, 'step')} so far had a loss that is NaN or infinite "
                f"({total}) or gradients beyond {LARGEST:g} ({large}); nothing is learnt from them",
                category=RunWarning,
            )
            for logger in trainer.loggers:
                figures = {"train/broken_steps": float(total + large)}
                logger.log_metrics(figures, step=logged_step(trainer))
        self._told = total + large
        if in_a_row >= self.patience:
            raise NotFiniteError(
                f"the loss of {in_a_row} steps in a row is NaN or infinite: the learning rate may "
                "be too high, or the data broken; checkpoints hold the weights before"
            )


def running(module: nn.Module) -> dict[str, Tensor]:
    """Running statistics of norms, by name."""
    return {
        name: value
        for name, value in module.named_buffers()
        if name.rpartition(".")[2].startswith("running_") and value.is_floating_point()
    }

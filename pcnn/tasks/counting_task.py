"""The base of tasks whose evaluation counts classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import Metric

from pcnn.errors import NotFiniteError, RunWarning
from pcnn.metrics.confusion import ConfusionMatrix
from pcnn.tasks.network_task import NetworkTask
from pcnn.tasks.views import EvaluationViews


class Meters(nn.Module):
    """Sums over an evaluation."""

    def __init__(self, num_classes: int, ignore_index: int) -> None:
        super().__init__()
        self.confusion = ConfusionMatrix(num_classes, ignore_index)
        self.voted = ConfusionMatrix(num_classes, ignore_index)  # of test-time augmentation
        self.loss = Mean()
        self.broken = Mean()  # share of rows whose logits are NaN


class CountingTask(NetworkTask):
    """A network whose evaluations count classes, by a single pass and by the sum of views."""

    def __init__(
        self,
        net: nn.Module,
        class_names: Sequence[str],
        loss: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., LRScheduler],
        ignore_index: int = 255,
        decay_norms_and_biases: bool = False,
        prefetch_maps: bool = True,
        cuda_graphs: bool = False,
        views: EvaluationViews | None = None,
    ) -> None:
        settings = decay_norms_and_biases, prefetch_maps, cuda_graphs
        super().__init__(net, optimizer, scheduler, *settings)
        self.loss = loss
        self.class_names = tuple(class_names)
        self.ignore_index = ignore_index
        self.views = views
        self.train_confusion = ConfusionMatrix(len(class_names), ignore_index)  # of an epoch
        self.val_meters = Meters(len(class_names), ignore_index)
        self.test_meters = Meters(len(class_names), ignore_index)
        self.confusion: dict[str, Tensor] = {}  # the last pass's counts [C, C + 1] by stage

    @abstractmethod
    def evaluate(self, batch: Any, meters: Meters, views: EvaluationViews | None = None) -> Any:
        """Predict a batch and count it: the single pass, and the sum of views if there are any."""

    @abstractmethod
    def figures(self, counts: Tensor) -> Mapping[str, Tensor]:
        """Figures of counts [C, C + 1], by name, to log."""

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        return self.evaluate(batch, self.val_meters, self.views_now)

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        return self.evaluate(batch, self.test_meters, self.views_now)

    @property
    def views_now(self) -> EvaluationViews | None:
        """The views, except in the validations of a training, which are a single pass."""
        if self.views is None or self.trainer.state.fn == "fit":
            return None
        return self.views

    def on_validation_epoch_end(self) -> None:
        self.log_evaluation("val", self.val_meters)

    def on_test_epoch_end(self) -> None:
        self.log_evaluation("test", self.test_meters)

    def classes_of(self, logits: Tensor, meters: Meters) -> Tensor:
        """Class of every row of logits [N, C]; of a row with NaN no class (`ignore_index`).

        The argmax of NaN would be a class like any other.
        """
        broken = logits.isnan().any(1)  # [N]
        meters.broken.update(broken.double().sum() / max(len(logits), 1), len(logits))
        return logits.argmax(1).masked_fill(broken, self.ignore_index)

    def log_evaluation(self, stage: str, meters: Meters) -> None:
        """Log all metrics of a pass, exact over ranks, and keep its confusion matrices."""
        counts = meters.confusion.compute()
        broken = float(meters.broken.compute())
        meters.broken.reset()
        if broken == 1:
            raise NotFiniteError(f"{stage}: the network gives NaN for every row: a lower rate?")
        if broken > 0:
            said = f"{stage}: the network gives NaN for {100 * broken:.3g} % of the rows"
            rank_zero_warn(said, category=RunWarning)
        if stage == "val" and int(counts.sum()) == 0:
            said = "val: no row has a label that counts, so the figures are NaN"
            rank_zero_warn(said, category=RunWarning)
        # a checkpoint's monitor must be logged by every validation; a test may have no truth
        if stage == "val" or int(counts.sum()) > 0:
            self.log_dict({f"{stage}/loss": meters.loss.compute()})
            self.log_counts(stage, counts)
            if self.views_now is not None:
                self.log_counts(f"{stage}/tta", meters.voted.compute())
        meters.confusion.reset()
        meters.voted.reset()
        meters.loss.reset()

    def log_counts(self, stage: str, counts: Tensor) -> None:
        """Log the figures of counts [C, C + 1] and keep them."""
        self.confusion[stage] = counts
        nothing = counts.sum() == 0  # figures of nothing are NaN, not 0
        self.log_dict(
            {
                f"{stage}/{name}": value.masked_fill(nothing, torch.nan)
                for name, value in self.figures(counts).items()
            }
        )


class Mean(Metric):
    """sum(weight * value) / sum(weight), exact over ranks; 0 without values.

    Sums are float64, so that the mean of a long pass does not depend on its order.
    """

    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        zero = torch.zeros((), dtype=torch.float64)
        self.add_state("total", zero, dist_reduce_fx="sum")
        self.add_state("weight", zero.clone(), dist_reduce_fx="sum")

    def update(self, value: Tensor, weight: float | Tensor = 1.0) -> None:
        self.total += value.detach().double() * weight
        self.weight += weight

    def compute(self) -> Tensor:
        return (self.total / self.weight.clamp(min=torch.finfo(torch.float64).tiny)).float()

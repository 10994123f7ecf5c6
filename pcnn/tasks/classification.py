"""Classification: a class for every cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pcnn.metrics import (
    ConfusionMatrix,
    accuracy,
    best_constant_accuracy,
    class_accuracy,
    mean_class_accuracy,
)
from pcnn.tasks.mean import Mean
from pcnn.tasks.network_task import NetworkTask
from pcnn.tasks.views import EvaluationViews, summed_cloud_probabilities


class ClassificationTask(NetworkTask):
    """Train a network that gives one row of logits a cloud.

    A batch has `tensor` (SparseTensor of B clouds, also empty ones), `labels` [B] int64 in 0..C-1
    or `ignore_index`, `names` [B] and `batch_size`, B; a batch without clouds counts for nothing.
    For views it also has what `pcnn.tasks.views.summed_cloud_probabilities` asks for.

    Logged: `train/loss`, `train/accuracy` (of the batch), `train/lr`, and for `val` and `test`:
    `loss` (mean over clouds), `accuracy`, `mean_accuracy` (mean over the classes that occur of the
    share of their clouds that is right), `best_constant` (accuracy of always answering the
    commonest class), `accuracy/<class>`. All are counted in a confusion matrix that is summed over
    ranks, so they are exact under DDP. A test without any label logs nothing. An evaluation with
    `views` logs the same figures but the loss once more as `val/tta/...` and `test/tta/...`, of the
    argmax of the probabilities summed over the views.

    Args:
        net: maps the input tensor to logits [B, C].
        class_names: C names.
        loss: `loss(logits [B, C], labels [B]) -> scalar`.
        optimizer: as in `NetworkTask`, with `scheduler`, `decay_norms_and_biases`,
            `prefetch_maps` and `compiled`.
        scheduler: ...
        ignore_index: label that counts nowhere.
        decay_norms_and_biases: ...
        prefetch_maps: ...
        compiled: ...
        views: of test-time augmentation; None for a single pass alone.
    """

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
        compiled: bool = False,
        views: EvaluationViews | None = None,
    ) -> None:
        super().__init__(net, optimizer, scheduler, decay_norms_and_biases, prefetch_maps, compiled)
        self.views = views
        self.loss = loss
        self.class_names = tuple(class_names)
        self.ignore_index = ignore_index
        self.counted = ConfusionMatrix(len(class_names), ignore_index)
        self.voted = ConfusionMatrix(len(class_names), ignore_index)
        self.mean_loss = Mean()
        self.confusion: dict[str, Tensor] = {}  # the last pass's counts [C, C + 1] by stage

    def forward(self, tensor: Any) -> Tensor:
        """Logits [B, C] of every cloud."""
        logits: Tensor = self.run(tensor)
        return logits

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        logits = self(batch.tensor)
        loss: Tensor = self.loss(logits, batch.labels)
        labelled = (batch.labels != self.ignore_index).sum()
        right = (logits.detach().argmax(1) == batch.labels).sum() / labelled.clamp(min=1)
        size = batch.batch_size
        self.log("train/loss", loss.detach(), prog_bar=True, batch_size=size)
        self.log("train/accuracy", right, prog_bar=True, batch_size=size)
        self.log_rate(size)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Count one batch."""
        self.evaluate(batch, self.views_now)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Count one batch."""
        self.evaluate(batch, self.views_now)

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        """Class of every cloud, [B] int64."""
        return self(batch.tensor).argmax(1)

    def evaluate(self, batch: Any, views: EvaluationViews | None = None) -> Tensor | None:
        """Predict a batch and count it, by a single pass and, if there are any, by views.

        Returns:
            Classes [B], of the views where there are any; None for a batch of no clouds.
        """
        if batch.batch_size == 0:
            return None
        logits = self(batch.tensor)
        pred = logits.argmax(1)
        # by the clouds that are in the loss's mean; a device scalar, so that nothing waits
        labelled = (batch.labels != self.ignore_index).sum()
        self.mean_loss.update(self.loss(logits, batch.labels), labelled)
        self.counted.update(pred, batch.labels)
        if views is not None:
            pred = summed_cloud_probabilities(self, batch, views, len(self.class_names)).argmax(1)
            self.voted.update(pred, batch.labels)
        return pred

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the pass."""
        self.log_evaluation("val")

    def on_test_epoch_end(self) -> None:
        """Log the metrics of the pass."""
        self.log_evaluation("test")

    def log_evaluation(self, stage: str) -> None:
        """Log all metrics of a pass, exact over ranks, and keep its confusion matrices."""
        counts = self.counted.compute()
        # a checkpoint's monitor must be logged by every validation; a test may have no truth
        if stage == "val" or int(counts.sum()) > 0:
            self.log_dict({f"{stage}/loss": self.mean_loss.compute().float()})
            self.log_counts(stage, counts)
            if self.views_now is not None:
                self.log_counts(f"{stage}/tta", self.voted.compute())
        self.counted.reset()
        self.voted.reset()
        self.mean_loss.reset()

    def log_counts(self, stage: str, counts: Tensor) -> None:
        """Log the figures of counts [C, C + 1] and keep them."""
        self.confusion[stage] = counts
        figures = {
            "accuracy": accuracy(counts),
            "mean_accuracy": mean_class_accuracy(counts),
            "best_constant": best_constant_accuracy(counts),
            **{
                f"accuracy/{name}": share
                for name, share in zip(self.class_names, class_accuracy(counts), strict=True)
            },
        }
        self.log_dict({f"{stage}/{name}": value.float() for name, value in figures.items()})

"""Classification: a class for every cloud."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pcnn.metrics import (
    accuracy,
    best_constant_accuracy,
    class_accuracy,
    mean_class_accuracy,
)
from pcnn.tasks.counting_task import CountingTask, Meters
from pcnn.tasks.views import EvaluationViews, summed_cloud_probabilities


class ClassificationTask(CountingTask):
    """Train a network that gives one row of logits a cloud.

    A batch has `tensor` (SparseTensor of B clouds, also empty ones), `labels` [B] int64 in 0..C-1
    or `ignore_index`, `names` [B] and `batch_size` B, and for views what
    `pcnn.tasks.views.summed_cloud_probabilities` asks for.
    """

    def forward(self, tensor: Any) -> Tensor:
        """Logits [B, C] of every cloud."""
        logits: Tensor = self.run(tensor)
        return logits

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        logits = self(batch.tensor)
        loss: Tensor = self.loss(logits, batch.labels)
        labelled = (batch.labels != self.ignore_index).sum()
        size = batch.batch_size
        self.log("train/loss", loss.detach(), batch_size=size)
        if self.is_logged:
            right = (logits.detach().argmax(1) == batch.labels).sum() / labelled.clamp(min=1)
            self.log("train/accuracy", right, batch_size=size)
        self.log_step(labelled, size)
        return loss

    def evaluate(
        self, batch: Any, meters: Meters, views: EvaluationViews | None = None
    ) -> Tensor | None:
        """Predict a batch and count it."""
        if batch.batch_size == 0:
            return None
        logits = self(batch.tensor)
        pred = self.classes_of(logits, meters)
        # by the clouds that are in the loss's mean; a device scalar, so that nothing waits
        labelled = (batch.labels != self.ignore_index).sum()
        meters.loss.update(self.loss(logits, batch.labels), labelled)
        meters.confusion.update(pred, batch.labels)
        if views is not None:
            pred = summed_cloud_probabilities(self, batch, views).argmax(1)
            meters.voted.update(pred, batch.labels)
        return pred

    def figures(self, counts: Tensor) -> dict[str, Tensor]:
        """Figures of counts [C, C + 1]: shares of clouds that are right."""
        means = {
            "accuracy": accuracy(counts),
            "mean_accuracy": mean_class_accuracy(counts),
            "best_constant": best_constant_accuracy(counts),
        }
        names = (f"accuracy/{name}" for name in self.class_names)
        of_classes = zip(names, class_accuracy(counts), strict=True)
        return {name: value.float() for name, value in [*means.items(), *of_classes]}

"""Semantic segmentation: a class for every point."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pcnn.metrics import iou, miou_official, summary
from pcnn.tasks.counting_task import CountingTask, Meters
from pcnn.tasks.views import EvaluationViews, summed_probabilities

#: Key of a checkpoint: points counted in the epoch so far, [C, C + 1].
COUNTED = "train_confusion"


class SegmentationTask(CountingTask):
    """Train a network on the labels of rows (voxels or native points), evaluate it on points.

    Training: `loss(net(tensor).features [N, C], labels [N])`. Evaluation: the class of a point is
    the argmax of its row's logits, reached through `tensor.geometry.inverse` [P], and counts
    against the point's own label, so that voxels hide no mistake; with `views`, outside training,
    also the argmax of the probabilities summed over these.

    A batch has `tensor` (SparseTensor), `labels` [N], `points` [P, 3], `point_labels` [P] or None,
    `point_offsets` [B + 1], `names` [B] and `batch_size`. Labels are int64 in 0..C-1 or
    `ignore_index`.
    """

    def forward(self, tensor: Any) -> Tensor:
        """Logits [N, C] of every row."""
        logits: Tensor = self.run(tensor).features
        return logits

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        logits = self(batch.tensor)
        loss: Tensor = self.loss(logits, batch.labels)
        counted = self.train_confusion.counted(logits.detach().argmax(1), batch.labels)
        self.train_confusion.add(*counted)
        size = batch.batch_size
        self.log("train/loss", loss.detach(), batch_size=size)
        if self.is_logged:
            # of the points counted on this rank so far, a device scalar: no sync
            so_far = miou_official(self.train_confusion.counts).float()
            self.log("train/miou", so_far, batch_size=size)
        self.log_step((batch.labels != self.ignore_index).sum(), size)
        return loss

    def on_train_epoch_start(self) -> None:
        self.train_confusion.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the counts of the epoch so far: a resumed run logs the mIoU of the whole epoch."""
        checkpoint[COUNTED] = self.train_confusion.counts.cpu()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on counting; a checkpoint of an earlier version has no counts."""
        counts = checkpoint.get(COUNTED)
        if counts is not None and counts.shape == self.train_confusion.counts.shape:
            self.train_confusion.counts.copy_(counts)

    def evaluate(
        self, batch: Any, meters: Meters, views: EvaluationViews | None = None
    ) -> dict[str, Any] | None:
        """Predict a batch and count it."""
        if batch.batch_size == 0:
            return None
        logits = self(batch.tensor)
        pred = self.classes_of(logits, meters)[batch.tensor.geometry.inverse]  # [P]
        if batch.point_labels is not None:
            meters.loss.update(self.loss(logits, batch.labels), batch.batch_size)
            meters.confusion.update(pred, batch.point_labels)
        if views is not None:
            pred = summed_probabilities(self, batch, views).argmax(1)
            if batch.point_labels is not None:
                meters.voted.update(pred, batch.point_labels)
        first = slice(0, int(batch.point_offsets[1]))
        return {
            "points": batch.points[first],
            "pred": pred[first],
            "target": None if batch.point_labels is None else batch.point_labels[first],
            "name": batch.names[0],
            "predictions": pred,
        }

    def figures(self, counts: Tensor) -> dict[str, Tensor]:
        """Figures of counts [C, C + 1]: means, and the IoU of every class."""
        scores = iou(counts).float()
        names = (f"iou/{name}" for name in self.class_names)
        return summary(counts) | dict(zip(names, scores, strict=True))

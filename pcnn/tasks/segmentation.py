"""Semantic segmentation: a class for every point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pcnn.metrics import ConfusionMatrix, iou, miou_official, summary
from pcnn.nn import PlannedModule
from pcnn.ops.prefetch import SideStream, tensors_of
from pcnn.tasks.mean import Mean
from pcnn.tasks.parameter_groups import parameter_groups


class Meters(nn.Module):
    """What an evaluation adds up."""

    def __init__(self, num_classes: int, ignore_index: int) -> None:
        super().__init__()
        self.confusion = ConfusionMatrix(num_classes, ignore_index)
        self.loss = Mean()


class SegmentationTask(L.LightningModule):
    """Train a network on the labels of rows (voxels or native points), evaluate it on points.

    Training: `loss(net(tensor).features [N, C], labels [N])`. Evaluation: the class of a point is
    the argmax of its row's logits, reached through `tensor.geometry.inverse` [P], and counts
    against the point's own label, so that voxels, or points that were left out, hide no mistake.

    A batch has `tensor` (SparseTensor), `labels` [N], `points` [P, 3], `point_labels` [P] or None,
    `point_offsets` [B + 1], `names` [B] and `batch_size`. Labels are int64 in 0..C-1 or
    `ignore_index`.

    Logged: `train/loss`, `train/miou` (over the epoch so far, on rows), `train/lr`, and for
    `val` and `test`: `loss`, `miou` (official: an absent class counts 0), `miou_present`,
    `accuracy`, `best_constant`, `iou/<class>`.

    Args:
        net: maps the input tensor to C logits a row.
        class_names: C names.
        loss: `loss(logits [N, C], labels [N]) -> scalar`.
        optimizer: makes an optimiser from parameter groups.
        scheduler: makes a schedule from (optimiser, total_steps); stepped after every step.
        ignore_index: label that counts nowhere.
        decay_norms_and_biases: whether weight decay acts on parameters with one dimension.
        prefetch_maps: on a CUDA device, move and plan a batch on a side stream, while the device is
            still busy with the step before.
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
    ) -> None:
        super().__init__()
        self.net = net
        self.loss = loss
        self.class_names = tuple(class_names)
        self.make_optimizer = optimizer
        self.make_scheduler = scheduler
        self.decay_norms_and_biases = decay_norms_and_biases
        self.prefetch_maps = prefetch_maps
        self._side: SideStream | None = None
        self.train_confusion = ConfusionMatrix(len(class_names), ignore_index)
        self.val_meters = Meters(len(class_names), ignore_index)
        self.test_meters = Meters(len(class_names), ignore_index)
        self.confusion: dict[str, Tensor] = {}  # the last pass's counts [C, C + 1] by stage

    def forward(self, tensor: Any) -> Tensor:
        """Logits [N, C] of every row."""
        logits: Tensor = self.net(tensor).features
        return logits

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Move a batch; its maps are planned on the way where the device can do both at once."""
        net = self.net
        if device.type != "cuda" or not self.prefetch_maps or not isinstance(net, PlannedModule):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        if self._side is None or self._side.device != device:
            self._side = SideStream(device)

        def prepare() -> Any:
            moved = batch.to(device, non_blocking=True)
            net.planner(moved.tensor.geometry, self.training)
            return moved

        return self._side.run(prepare, lambda moved: [*moved.tensors(), *tensors_of(moved.tensor)])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        logits = self(batch.tensor)
        loss: Tensor = self.loss(logits, batch.labels)
        self.train_confusion.update(logits.detach().argmax(1), batch.labels)
        size = batch.batch_size
        self.log("train/loss", loss.detach(), prog_bar=True, batch_size=size)
        self.log("train/miou", miou_so_far(self.train_confusion), prog_bar=True, batch_size=size)
        self.log("train/lr", self.trainer.optimizers[0].param_groups[0]["lr"], batch_size=size)
        return loss

    def on_train_epoch_start(self) -> None:
        """Begin the running mIoU anew."""
        self.train_confusion.reset()

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any] | None:
        """Count one batch; returns what `evaluate` returns."""
        return self.evaluate(batch, self.val_meters)

    def test_step(self, batch: Any, batch_idx: int) -> dict[str, Any] | None:
        """Count one batch; returns what `evaluate` returns."""
        return self.evaluate(batch, self.test_meters)

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        """Class of every point, [P] int64."""
        return self(batch.tensor).argmax(1)[batch.tensor.geometry.inverse]

    def evaluate(self, batch: Any, meters: Meters) -> dict[str, Any] | None:
        """Predict a batch and count it.

        Returns:
            `points` [P0, 3], `pred` [P0], `target` [P0] or None and `name` of the batch's first
            scan, and `predictions` [P], the classes of all points of the batch. None for a batch
            without scans, which a rank gets when another has one more.
        """
        if batch.batch_size == 0:
            return None
        logits = self(batch.tensor)
        pred = logits.argmax(1)[batch.tensor.geometry.inverse]  # [P]
        if batch.point_labels is not None:
            meters.loss.update(self.loss(logits, batch.labels), batch.batch_size)
            meters.confusion.update(pred, batch.point_labels)
        first = slice(0, int(batch.point_offsets[1]))
        return {
            "points": batch.points[first],
            "pred": pred[first],
            "target": None if batch.point_labels is None else batch.point_labels[first],
            "name": batch.names[0],
            "predictions": pred,
        }

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the pass."""
        self.log_evaluation("val", self.val_meters)

    def on_test_epoch_end(self) -> None:
        """Log the metrics of the pass."""
        self.log_evaluation("test", self.test_meters)

    def log_evaluation(self, stage: str, meters: Meters) -> None:
        """Log all metrics of a pass, exact over ranks, and keep its confusion matrix."""
        counts = meters.confusion.compute()
        self.confusion[stage] = counts
        self.log(f"{stage}/loss", meters.loss.compute())
        self.log_dict(summary(counts, f"{stage}/"), prog_bar=False)
        scores = iou(counts).float()
        names = (f"{stage}/iou/{name}" for name in self.class_names)
        self.log_dict(dict(zip(names, scores, strict=True)))
        meters.confusion.reset()
        meters.loss.reset()

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """The optimiser, and its schedule stepped after every optimiser step."""
        groups = parameter_groups(self.net, self.decay_norms_and_biases)
        optimizer = self.make_optimizer(groups)
        total = int(self.trainer.estimated_stepping_batches)
        schedule = self.make_scheduler(optimizer, total_steps=total)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


@torch.no_grad()
def miou_so_far(confusion: ConfusionMatrix) -> Tensor:
    """Official mIoU of the points counted on this rank so far, a device scalar: no sync."""
    return miou_official(confusion.counts).float()

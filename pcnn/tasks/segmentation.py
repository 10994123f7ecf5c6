"""Semantic segmentation: a class for every point."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pcnn.errors import NotFiniteError, RunWarning
from pcnn.graphs.capture import CudaGraphs
from pcnn.losses import CrossEntropy
from pcnn.metrics import iou, miou_official, summary
from pcnn.metrics.confusion import ConfusionMatrix, class_counts
from pcnn.tasks.loss_graphs import LossGraphs, is_of_rows
from pcnn.tasks.meters import Meters
from pcnn.tasks.network_task import NetworkTask
from pcnn.tasks.views import EvaluationViews, summed_probabilities

log = logging.getLogger(__name__)

#: Key of a checkpoint: points counted in the epoch so far, [C, C + 1].
COUNTED = "train_confusion"


class SegmentationTask(NetworkTask):
    """Train a network on the labels of rows (voxels or native points), evaluate it on points.

    Training: `loss(net(tensor).features [N, C], labels [N])`. Evaluation: the class of a point is
    the argmax of its row's logits, reached through `tensor.geometry.inverse` [P], and counts
    against the point's own label, so that voxels hide no mistake; with `views`, outside training,
    also the argmax of the probabilities summed over these.

    A batch has `tensor` (SparseTensor), `labels` [N], `points` [P, 3], `point_labels` [P] or None,
    `point_offsets` [B + 1], `names` [B] and `batch_size`. Labels are int64 in 0..C-1 or
    `ignore_index`.
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
        cuda_graphs: bool = False,
        views: EvaluationViews | None = None,
    ) -> None:
        settings = decay_norms_and_biases, prefetch_maps, cuda_graphs
        super().__init__(net, optimizer, scheduler, *settings)
        for part in loss.modules():
            weight = part.weight if isinstance(part, CrossEntropy) else None
            if weight is not None and len(weight) != len(class_names):
                raise ValueError(f"loss: {len(weight)} weights for {len(class_names)} classes")
        self.loss = loss
        self.class_names = tuple(class_names)
        self.ignore_index = ignore_index
        self.views = views
        self.train_confusion = ConfusionMatrix(len(class_names), ignore_index)  # of an epoch
        self.val_meters = Meters(len(class_names), ignore_index)
        self.test_meters = Meters(len(class_names), ignore_index)
        self._graphs: LossGraphs | None = None
        self.confusion: dict[str, Tensor] = {}  # the last pass's counts [C, C + 1] by stage

    def forward(self, tensor: Any) -> Tensor:
        """Logits [N, C] of every row."""
        logits: Tensor = self.run(tensor).features
        return logits

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        learnt = self._graphs or self.learnt
        loss, counts = learnt(self(batch.tensor), batch.labels)
        self.train_confusion.counts += counts
        size = batch.batch_size
        self.log_loss(loss, size)
        if self.is_logged:
            # of the points counted on this rank so far, a device scalar: no sync
            so_far = miou_official(self.train_confusion.counts).float()
            self.log("train/miou", so_far, batch_size=size)
        self.log_step(0, size)
        return loss

    def learnt(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of rows, and their counts [C, C + 1]."""
        classes = logits.detach().argmax(1)
        return self.loss(logits, labels), class_counts(classes, labels, len(self.class_names))

    def on_train_start(self) -> None:
        """Let losses be graphs, too, behind a network whose steps are."""
        super().on_train_start()
        on_device = self.cuda_graphs and self.device.type == "cuda"
        if on_device and is_of_rows(self.loss, self.ignore_index):
            self._graphs = LossGraphs(self.learnt, self.ignore_index, CudaGraphs(self.device))

    def on_train_end(self) -> None:
        """Give back the memory of graphs."""
        graphs, self._graphs = self._graphs, None
        if graphs is not None and graphs.reason is not None:
            log.info("losses ran eagerly: %s", graphs.reason)
        super().on_train_end()

    def taught(self) -> Tensor:
        """Labelled rows of the epoch."""
        return self.train_confusion.counts.sum()

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
        }

    def figures(self, counts: Tensor) -> dict[str, Tensor]:
        """Figures of counts [C, C + 1]: means, and the IoU of every class."""
        scores = iou(counts).float()
        names = (f"iou/{name}" for name in self.class_names)
        return summary(counts) | dict(zip(names, scores, strict=True))

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

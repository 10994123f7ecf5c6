from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcnn.errors import NotFiniteError, UserError
from pcnn.losses import CrossEntropy, WeightedSum
from pcnn.tasks import SegmentationTask
from pcnn.tasks.schedules import constant
from tests.tasks.quiet import Lookup, loader, trainer_for

NAMES = ("low", "middle", "high")


def batch_of(logits: Tensor, inverse: Tensor, labels: Tensor, points: list[Tensor]) -> Any:
    """A batch whose scans have the given point labels; logits [N, 3], inverse [P]."""
    sizes = [len(one) for one in points]
    return SimpleNamespace(
        tensor=SimpleNamespace(features=logits, geometry=SimpleNamespace(inverse=inverse)),
        labels=labels,
        points=torch.rand(sum(sizes), 3),
        point_labels=torch.cat(points) if points else None,
        point_offsets=torch.tensor([0, *sizes]).cumsum(0),
        names=tuple(f"scan {index}" for index in range(len(sizes))),
        batch_size=len(sizes),
    )


def task(loss: nn.Module | None = None) -> SegmentationTask:
    optimizer = partial(torch.optim.SGD, lr=0.5)
    return SegmentationTask(Lookup(), NAMES, loss or CrossEntropy(), optimizer, constant)


def test_weights_are_of_the_classes() -> None:
    for weight, fits in ([1.0, 0.5, 2.0], True), ([1.0, 2.0], False):
        for loss in CrossEntropy(weight), WeightedSum([CrossEntropy(weight)]):
            with nullcontext() if fits else pytest.raises(ValueError, match="loss"):
                task(loss)


def sure_of(classes: list[int]) -> Tensor:
    """Logits [N, 3] of a network that is sure of these classes."""
    return 10.0 * nn.functional.one_hot(torch.tensor(classes), 3).float()


def two_scans() -> Any:
    # voxel 0 holds points 0 and 1, which differ: one of them must count as wrong
    return batch_of(
        sure_of([0, 1, 2]),
        torch.tensor([0, 0, 1, 2, 2]),
        torch.tensor([0, 1, 2]),
        [torch.tensor([0, 1, 1]), torch.tensor([2, 255])],
    )


def test_batch_without_scans_and_batch_without_labels() -> None:
    module = task()
    empty = batch_of(torch.empty(0, 3), torch.empty(0, dtype=torch.int64), torch.empty(0), [])
    assert module.evaluate(empty, module.val_meters) is None
    unlabelled = two_scans()
    unlabelled.point_labels = None
    seen = module.evaluate(unlabelled, module.test_meters)
    assert seen is not None
    assert seen["target"] is None
    assert seen["pred"].shape == (3,)
    assert module.test_meters.confusion.compute().sum() == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_logged_figures_over_several_batches(tmp_path: Any) -> None:
    module, trainer = task(), trainer_for(tmp_path)
    (figures,) = trainer.validate(module, loader([two_scans(), two_scans()]), verbose=False)
    assert figures["val/miou"] == pytest.approx(2 / 3, abs=1e-6)
    assert figures["val/iou/high"] == pytest.approx(1.0)
    assert figures["val/accuracy"] == pytest.approx(0.75)
    assert figures["val/loss"] == pytest.approx(9.08e-5, rel=1e-2)
    assert module.confusion["val"].sum() == 8
    # a second pass starts from zero
    wrong = two_scans()
    wrong.labels = wrong.labels.roll(1)  # of the rows, which the loss is of
    (again,) = trainer.validate(module, loader([wrong]), verbose=False)
    assert again["val/miou"] == figures["val/miou"]
    assert again["val/loss"] == pytest.approx(10.0, rel=1e-3)
    assert module.confusion["val"].sum() == 4


def test_rows_of_nan_are_no_class_and_a_network_of_nan_ends_the_run(tmp_path: Any) -> None:
    part = two_scans()
    part.tensor.features[0, 1] = torch.nan  # of points 0 and 1, which would be class 1
    with pytest.warns(UserWarning, match=r"NaN for 33.3 % of the rows"):
        (figures,) = trainer_for(tmp_path).validate(module := task(), loader([part]), verbose=False)
    assert module.confusion["val"][:2].tolist() == [[0, 0, 0, 1], [0, 1, 0, 1]]
    assert figures["val/iou/low"] == 0
    module = task()
    module.net.scale.data.fill_(torch.nan)  # type: ignore[union-attr, operator]
    with pytest.raises(NotFiniteError, match="val: the network gives NaN for every row"):
        trainer_for(tmp_path).validate(module, loader([two_scans()]), verbose=False)


@pytest.mark.filterwarnings("ignore:.*sync_dist.*")
def test_figures_of_nothing_are_nan(tmp_path: Any) -> None:
    ignored = two_scans()
    ignored.point_labels[:] = 255
    with pytest.warns(UserWarning, match="no row has a label that counts"):
        (figures,) = trainer_for(tmp_path).validate(task(), loader([ignored]), verbose=False)
    assert math.isnan(figures["val/miou"])
    assert math.isnan(figures["val/iou/low"])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_training_that_learns_from_nothing_is_an_error(tmp_path: Any) -> None:
    labels = torch.full((4,), 255)
    batch = batch_of(torch.randn(4, 3), torch.arange(4), labels, [labels])
    with pytest.raises(UserError, match="nothing was learnt in 2 steps"):
        trainer_for(tmp_path, max_steps=2).fit(task(), loader([batch] * 9))
    with pytest.raises(UserError, match="nothing was learnt in 3 steps"):
        trainer_for(tmp_path, max_epochs=9).fit(task(), loader([batch] * 3))


def test_counts_of_an_epoch_travel_with_a_checkpoint() -> None:
    module, other, kept = task(), task(), {}
    module.train_confusion.update(torch.tensor([0, 1]), torch.tensor([1, 1]))
    module.on_save_checkpoint(kept)
    other.on_load_checkpoint(kept)
    assert torch.equal(other.train_confusion.compute(), module.train_confusion.compute())
    other.on_load_checkpoint({})  # of an earlier version

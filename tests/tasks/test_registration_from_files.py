"""From files in a published format to descriptors: loaders, task and losses fit together."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from pcnn.datamodules import RegistrationDataModule
from pcnn.datasets import OnPoints, OnVoxels, Placement
from pcnn.datasets.registration import PairAugmentation, ThreeDMatchSets
from pcnn.losses import Circle, HardestContrastive
from pcnn.models import ResUNetBN2C
from pcnn.tasks import RegistrationTask
from pcnn.tasks.schedules import exponential
from tests.datasets.registration.training_sets import write_predator
from tests.tasks.test_registration import trainer_for


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("geometry", "loss"),
    [(OnVoxels(), HardestContrastive(64, 32)), (OnPoints(), Circle(samples=64))],
    ids=["voxel", "point"],
)
def test_fit_and_validate(geometry: Placement, loss: nn.Module, tmp_path: Path) -> None:
    write_predator(tmp_path / "set", ("a", "b"))
    data = RegistrationDataModule(
        ThreeDMatchSets(root=str(tmp_path / "set")),
        voxel_size=0.1,
        augment=PairAugmentation(),
        feature_noise=0.01,
        batch_size=2,
        val_batch_size=2,
        num_workers=0,
        geometry=geometry,
    )
    torch.manual_seed(0)
    net = ResUNetBN2C(width=0.125, first_kernel=3)
    before = net.final.weight.detach().clone()
    task = RegistrationTask(
        net,
        loss,
        partial(torch.optim.SGD, lr=0.1, momentum=0.8),
        exponential,
        voxel_size=data.voxel_size,
        benchmark=data.benchmark,
        val_samples=200,
        val_hypotheses=100,
    )
    trainer = trainer_for(tmp_path, max_steps=2)
    trainer.fit(task, data)
    assert not torch.equal(net.final.weight, before)
    assert trainer.callback_metrics["train/positives"] > 0
    assert trainer.callback_metrics["train/loss"] > 0
    pairs = data.dataset("val")
    assert pairs is not None
    assert len(task.results["val"]) == len(pairs) > 1
    assert {"val/loss", "val/feat_match_ratio", "val/inlier_ratio", "val/rr"} <= set(
        trainer.callback_metrics
    )

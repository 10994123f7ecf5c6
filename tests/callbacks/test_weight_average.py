"""The moving average of weights is what is evaluated and kept; training goes on as without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from pcnn.callbacks.checkpoint import Checkpoint
from pcnn.callbacks.weight_average import MovingAverage, WeightAverage
from tests.callbacks.tiny import Data, Task, held, train, trainer_for, validations

pytestmark = pytest.mark.filterwarnings("ignore")


def fit(folder: Path, steps: int, decay: float | None) -> tuple[Task, Checkpoint]:
    """Train into `folder`, or go on there."""
    options = {"val_check_interval": 2, "check_val_every_n_epoch": None, "max_steps": steps}
    return train(folder, every=2, also=[WeightAverage(decay)], **options)


def test_the_decay_grows_to_the_given_one() -> None:
    model = nn.Linear(1, 1, bias=False)
    average = MovingAverage(model, 0.25)
    expected = 0.0
    for step, value in enumerate((3.0, 5.0, 1.0, 2.0)):
        nn.init.constant_(model.weight, value)
        average.update_parameters(model)
        decay = min(0.25, (1 + step) / (10 + step)) if step else 0.0
        expected = decay * expected + (1 - decay) * value
        assert float(average.module.weight) == pytest.approx(expected)
    assert (1 + 3) / (10 + 3) > 0.25 > (1 + 1) / (10 + 1)


def test_a_resumed_average_is_the_uninterrupted_one(tmp_path: Path) -> None:
    for name, steps in (("straight", 7), ("broken", 4), ("broken", 7)):
        fit(tmp_path / name, steps, 0.9)
    straight, broken = (held(tmp_path / name / "last.ckpt") for name in ("straight", "broken"))
    for part in ("state_dict", "current_model_state", "averaging_state"):
        assert straight[part].keys() == broken[part].keys()
        for name, value in straight[part].items():
            assert torch.equal(value, broken[part][name]), (part, name)


def test_evaluations_in_and_after_a_training_take_the_average(tmp_path: Path) -> None:
    task, checkpoint = fit(tmp_path, 6, 0.9)
    path, score = tmp_path / "best.ckpt", validations(tmp_path)[checkpoint.best_step or 0]
    other = Task()
    other.load_state_dict(held(path)["state_dict"])
    (expected,) = trainer_for(tmp_path, []).validate(other, Data(), verbose=False)
    (found,) = task.trainer.validate(task, Data(), ckpt_path=path, weights_only=True, verbose=False)
    assert found["val/score"] == expected["val/score"] == pytest.approx(score, rel=1e-6)


@pytest.mark.gpu
def test_an_update_does_not_wait_for_the_device() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).cuda()
    average = MovingAverage(model, 0.9).to("cuda")
    average.update_parameters(model)
    assert average.n_averaged.device.type == "cpu"
    torch.cuda.set_sync_debug_mode("error")
    try:
        average.update_parameters(model)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(average.module[0].weight, model[0].weight)

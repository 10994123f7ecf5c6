"""The moving average of weights is what is evaluated and kept; training goes on as without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn

from pcnn.callbacks.checkpoint import Checkpoint
from pcnn.callbacks.weight_average import MovingAverage, WeightAverage
from tests.callbacks.tiny import held

pytestmark = pytest.mark.filterwarnings("ignore")


class Small(L.LightningModule):
    """A norm and a weight that every batch moves; notes what validations saw."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.seen: list[Tensor] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = self.net(batch).square().mean()
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.seen.append(self.net[0].weight.detach().clone())
        self.log("val/loss", self.net(batch).square().mean())

    def test_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log("test/loss", self.net(batch).square().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)


def batches() -> Any:
    data = torch.randn(4, 8, 3, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.DataLoader(data, batch_size=None)  # type: ignore[arg-type]


def fit(
    folder: Path, steps: int, decay: float | None, resume: bool = False
) -> tuple[Small, L.Trainer]:
    module = Small()
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=steps,
        val_check_interval=2,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[
            WeightAverage(decay),
            Checkpoint(folder, checkpoint_every=2, monitor="val/loss", mode="min"),
        ],
    )
    last = folder / "last.ckpt" if resume else None
    trainer.fit(module, batches(), batches(), ckpt_path=last, weights_only=True)
    return module, trainer


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


def test_checkpoints_hold_the_average_and_the_weights_that_train(tmp_path: Path) -> None:
    plain, _ = fit(tmp_path / "plain", 6, None)
    module, _ = fit(tmp_path / "averaged", 6, 0.9)
    for ours, theirs in zip(plain.parameters(), module.parameters(), strict=True):
        assert torch.equal(ours, theirs)  # averaging changes nothing in the training
    content = held(tmp_path / "averaged" / "last.ckpt")
    for name, value in module.state_dict().items():
        assert torch.equal(content["current_model_state"][name], value)
    average = content["state_dict"]
    assert not torch.equal(average["net.0.weight"], module.net[0].weight)
    assert int(average["net.1.num_batches_tracked"]) == 6
    # the last validation saw the average at that step
    assert torch.equal(module.seen[-1], average["net.0.weight"])
    assert "current_model_state" not in held(tmp_path / "plain" / "last.ckpt")


def test_a_resumed_average_is_the_uninterrupted_one(tmp_path: Path) -> None:
    fit(tmp_path / "straight", 7, 0.9)
    fit(tmp_path / "broken", 4, 0.9)
    fit(tmp_path / "broken", 7, 0.9, resume=True)
    straight, broken = (held(tmp_path / name / "last.ckpt") for name in ("straight", "broken"))
    for part in ("state_dict", "current_model_state", "averaging_state"):
        assert straight[part].keys() == broken[part].keys()
        for name, value in straight[part].items():
            assert torch.equal(value, broken[part][name]), (part, name)


def test_evaluations_after_a_training_take_the_average(tmp_path: Path) -> None:
    module, trainer = fit(tmp_path, 6, 0.9)
    best = tmp_path / "best.ckpt"
    other = Small()
    other.load_state_dict(held(best)["state_dict"])
    for split, run in (("val", trainer.validate), ("test", trainer.test)):
        (figures,) = run(module, batches(), ckpt_path=best, weights_only=True, verbose=False)
        other.eval()
        with torch.no_grad():
            expected = torch.stack([other.net(b).square().mean() for b in batches()]).mean()
        assert figures[f"{split}/loss"] == pytest.approx(float(expected), rel=1e-5)


def test_a_decay_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="decay"):
        WeightAverage(1.0)


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

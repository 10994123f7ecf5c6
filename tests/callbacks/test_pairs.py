"""Pictures and W&B media of registered pairs."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
import wandb
from torch import nn
from torch.utils.data import DataLoader

from pcnn.callbacks import PairPicture, WandbPairs
from pcnn.callbacks.evaluation_media import LIMIT
from pcnn.callbacks.pair import Pair
from pcnn.callbacks.pair_media import PairFigures, overlay, overlays, pair_rows, scene_rows
from pcnn.callbacks.wandb_pairs import curves_of
from pcnn.loggers import RunWandbLogger, guard
from tests.callbacks.tiny import trainer_for


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    wandb.teardown()


def step(index: int, found: bool = True) -> dict[str, Any]:
    """What a validation step hands out: places moved by one metre, every second match wrong."""
    source = torch.rand(60, 3, generator=torch.Generator().manual_seed(index))
    truth = torch.eye(4, dtype=torch.float64)
    truth[0, 3] = 1.0
    rows = torch.arange(60)
    wrong = torch.where(rows % 2 == 0, rows, (rows + 30) % 60)
    return {
        "name": f"room/{index} onto 0",
        "source": source,
        "target": source + torch.tensor([1.0, 0.0, 0.0]),
        "truth": truth,
        "estimate": truth if found else None,
        "matches": torch.stack([rows, wrong], 1),
        "inlier_ratio": 0.5,
        "rre": 0.0 if found else float("nan"),
        "rte": 0.0 if found else float("nan"),
    }


class Pairs(L.LightningDataModule):
    source_kind = "simulated"

    def train_dataloader(self) -> DataLoader:
        return DataLoader(range(4))

    def val_dataloader(self) -> DataLoader:
        return DataLoader(range(3))


class Registering(L.LightningModule):
    """Gives out pairs; the second has no estimate."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.records: dict[str, dict[str, Any]] = {}
        self.judge = SimpleNamespace(
            hit_distance=0.1,
            ransac=object(),
            matches_features=lambda record: record.inlier_ratio > 0.05,
            registers=lambda record: record.rre < 5,
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch.float()[:, None]).square().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return step(batch_idx, batch_idx != 1)

    def on_validation_epoch_end(self) -> None:
        steps = [step(index, index != 1) for index in range(3)]
        self.records["val"] = {
            one["name"]: SimpleNamespace(
                rre=one["rre"], rte=one["rte"], inlier_ratio=one["inlier_ratio"]
            )
            for one in steps
        }

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(folder: Path, callbacks: list[L.Callback], **options: Any) -> None:
    trainer = trainer_for(
        folder,
        callbacks,
        max_steps=2,
        val_check_interval=2,
        enable_checkpointing=False,
        **options,
    )
    trainer.fit(Registering(), Pairs())
    assert trainer.global_step == 2


def test_a_pair_on_the_host_knows_its_right_matches() -> None:
    pair = Pair.of(step(0))
    assert pair is not None
    assert pair.drawn(0.1).right.sum() == 30
    assert pair.facts == "RRE 0.00 deg   RTE 0.000 m   right matches 50.0 %"
    lost = Pair.of({**step(0, found=False), "matches": None})
    assert lost is not None
    assert (lost.estimate, len(lost.matches)) == (None, 0)
    assert lost.facts == "right matches 50.0 %"
    assert Pair.of(None) is None
    assert Pair.of({"points": 1}) is None


def test_the_first_pair_is_drawn(tmp_path: Path) -> None:
    fit(tmp_path, [PairPicture(tmp_path)])
    assert (tmp_path / "predictions.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="every_n_validations"):
        PairPicture(tmp_path, 0)


def test_tables_curves_and_overlays_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, Any] = {}
    logger = RunWandbLogger(tmp_path, mode="offline")
    log = logger.log_metrics
    monkeypatch.setattr(
        logger, "log_metrics", lambda metrics, step=None: (sent.update(metrics), log(metrics, step))
    )
    fit(tmp_path, [WandbPairs(pairs=2)], logger=guard([logger]))
    clouds = {"val/pair_0/before", "val/pair_0/after", "val/pair_1/before"}
    assert {key for key in sent if "/pair_" in key} == clouds  # nothing after where none was found
    assert "SIMULATED" in str(sent["val/pair_0/after"]._caption)
    assert len(sent["val/pairs"].data) == 3
    assert sent["val/pairs"].data[1][2] is None
    assert sent["val/scenes"].data == [["room", 3, pytest.approx(2 / 3), 1.0, 0.5]]
    assert {"val/recall_by_rre", "val/recall_by_rte"} <= set(sent)
    logger.finish()


def test_a_failure_costs_the_media_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no media today")

    monkeypatch.setattr(wandb, "Table", refuse)
    logger = RunWandbLogger(tmp_path, mode="offline")
    with pytest.warns(UserWarning, match="failed to log media.*no media today"):
        fit(tmp_path, [WandbPairs()], logger=guard([logger]))
    logger.finish()


def test_without_wandb_nothing_is_kept(tmp_path: Path) -> None:
    media = WandbPairs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(tmp_path, [media])
    assert not media._kept
    with pytest.raises(ValueError, match="pairs"):
        WandbPairs(pairs=-1)


def test_overlays_stay_small_and_hold_both_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[np.ndarray] = []
    monkeypatch.setattr(wandb, "Object3D", lambda rows, caption: kept.append(rows) or caption)
    source, target = np.random.rand(90_000, 3), np.random.rand(60_000, 3)  # noqa: NPY002
    transform = np.eye(4)
    transform[2, 3] = 5.0
    media = overlays("x", source, target, transform, "a pair")
    assert media == {"x/before": "a pair, as given", "x/after": "a pair, registered"}
    before, after = kept
    assert before.shape == after.shape
    assert len(before) <= LIMIT
    orange = before[:, 3] > 200
    assert orange.sum() == pytest.approx(0.6 * len(before), rel=0.01)
    assert (after[orange, 2] > 4.9).all()
    assert (after[~orange, 2] < 1.1).all()
    assert overlay(source[:5], target[:0], None, "c", "simulated") == "c (SIMULATED)"


def test_figures_that_do_not_exist_are_left_empty() -> None:
    nan = float("nan")
    lines = [
        PairFigures("a", "1 onto 0", 1.0, 0.1, 0.3, True, True, 9),
        PairFigures("b", "2 onto 0", nan, nan, nan, False, False),
    ]
    assert pair_rows(lines).data[1] == ["b", "2 onto 0", None, None, None, None, False]
    assert scene_rows(lines).data == [["a", 1, 1.0, 1.0, 0.3], ["b", 1, 0.0, 0.0, None]]
    limits, curve = curves_of(lines)["RRE deg"]
    assert curve["val"][0] == 0.0
    assert curve["val"][-1] == 0.5
    assert limits[-1] == 15.0

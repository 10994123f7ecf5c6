"""Pictures and W&B media of registered pairs."""

from __future__ import annotations

import warnings
from math import nan
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
import wandb
from torch import nn
from torch.utils.data import DataLoader

from pcnn.callbacks import PairPicture, WandbPairs
from pcnn.callbacks.evaluation_preview import LIMIT
from pcnn.callbacks.pair_media import overlays, pair_rows, scene_rows
from pcnn.loggers import RunWandbLogger, guard
from pcnn.metrics.registration import (
    JudgedPairs,
    PairResult,
    recall_curves,
    summarize,
    validation_protocol,
)
from pcnn.visualize.pair import DrawnMatches, ShownPair
from tests.callbacks.tiny import trainer_for
from tests.visualize.view.test_page import held


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    wandb.teardown()


def step(index: int) -> tuple[PairResult, ShownPair]:
    """Places moved by one metre, every second match wrong; the second pair has no estimate."""
    error = nan if index == 1 else 0.0
    result = PairResult("room", 0, index, error, error, inlier_ratio=0.5, inliers=9)
    source = torch.rand(60, 3, generator=torch.Generator().manual_seed(index))
    truth = torch.eye(4, dtype=torch.float64)
    truth[0, 3] = 1.0
    target = source + torch.tensor([1.0, 0.0, 0.0])
    rows = torch.arange(60)
    wrong = torch.where(rows % 2 == 0, rows, (rows + 30) % 60)
    matches = DrawnMatches.of(source, target[wrong], truth, 0.1)
    estimate = None if index == 1 else truth
    pair = ShownPair.of(
        str(result.pair), source, target, estimate, facts=result.facts, matches=matches
    )
    return result, pair


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
        self.results: dict[str, list[PairResult]] = {}
        self.rules = validation_protocol("threedmatch")

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch.float()[:, None]).square().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, ShownPair]:
        return {"pair": step(batch_idx)[1]}

    def on_validation_epoch_end(self) -> None:
        self.results["val"] = [step(index)[0] for index in range(3)]

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


def test_a_pair_knows_its_right_matches() -> None:
    pair, lost = step(0)[1], step(1)[1]
    assert pair.matches is not None
    assert pair.matches.right.sum() == 30
    assert pair.facts == "RRE 0.00 deg   RTE 0.000 m   right matches 50.0 %"
    assert (lost.transform, lost.placed) == (None, None)
    assert lost.facts == "right matches 50.0 %"


def test_the_first_pair_is_drawn(tmp_path: Path) -> None:
    fit(tmp_path, [PairPicture(tmp_path)])
    assert (tmp_path / "predictions.png").stat().st_size > 10_000
    moved, fixed = held(tmp_path / "predictions.html")[0]["clouds"]
    assert moved["pose"] is not None
    assert fixed["pose"] is None
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
    media = overlays("x", ShownPair("a pair", source, target, transform))
    assert media == {"x/before": "a pair, as given", "x/after": "a pair, registered"}
    before, after = kept
    assert before.shape == after.shape
    assert len(before) <= LIMIT
    orange = before[:, 3] > 200
    assert orange.sum() == pytest.approx(0.6 * len(before), rel=0.01)
    assert (after[orange, 2] > 4.9).all()
    assert (after[~orange, 2] < 1.1).all()


def test_figures_that_do_not_exist_are_left_empty() -> None:
    rules = validation_protocol("threedmatch")
    lines = [
        PairResult("a", 0, 1, 1.0, 0.1, inlier_ratio=0.3, inliers=9),
        PairResult("b", 0, 2, nan, nan),
    ]
    assert pair_rows(JudgedPairs(lines, rules)).data == [
        ["a", "1 onto 0", 1.0, 0.1, 0.3, 9, True],
        ["b", "2 onto 0", None, None, None, 0, False],
    ]
    scenes = scene_rows(summarize(lines, rules, draws=0)).data
    assert scenes == [["a", 1, 1.0, 1.0, 0.3], ["b", 1, 0.0, None, None]]
    limits, curve = recall_curves({"val": lines}, rules)["RRE deg"]
    assert (curve["val"][0], curve["val"][-1], limits[-1]) == (0.0, 0.5, 15.0)

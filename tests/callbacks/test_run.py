"""One training with all callbacks and loggers, looked at from every side."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb

from pcnn import callbacks
from pcnn.loggers import RunCSVLogger, RunWandbLogger, finish
from tests.callbacks.segmenting import POINTS, Clouds, Segmenting
from tests.callbacks.tiny import held, trainer_for

STEPS = 20  # 6 batches an epoch; a validation at the end of each, and of the training

pytestmark = pytest.mark.filterwarnings("ignore")


class Run:
    """The training, its folder, and what it printed and sent to W&B."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent: dict[str, Any] = {}
        tracker = RunWandbLogger(folder, mode="offline")
        log = tracker.log_metrics

        def noted(metrics: Any, step: int | None = None) -> None:
            self.sent.update(metrics)
            log(metrics, step)

        tracker.log_metrics = noted  # type: ignore[method-assign]
        self.speed, self.start = callbacks.Throughput(), callbacks.WarmUp()
        self.task, text = Segmenting(), io.StringIO()
        trainer = trainer_for(
            folder,
            [
                callbacks.RngState(3),
                callbacks.TrainingProgress(5, terminal=False),
                self.start,
                self.speed,
                callbacks.WeightAverage(0.9),
                callbacks.FiniteSteps(2),
                callbacks.Pictures(folder),
                callbacks.Checkpoint(folder, 4, config={"model": {"width": 0.5}}),
            ],
            logger=[RunCSVLogger(folder, "csv", 0), tracker],
            max_steps=STEPS,
            log_every_n_steps=1,
            enable_progress_bar=True,
        )
        with redirect_stdout(text):
            trainer.fit(self.task, Clouds())
            trainer.test(self.task, Clouds(), verbose=False)
            finish(trainer.loggers)
        self.lines = text.getvalue().splitlines()
        with (folder / "csv/version_0/metrics.csv").open() as file:
            self.rows = list(csv.DictReader(file))

    def steps(self, name: str) -> list[int]:
        """The steps under which a figure was logged."""
        return [int(row["step"]) for row in self.rows if row.get(name)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_SILENT", "true")
        yield Run(tmp_path_factory.mktemp("run"))
    wandb.teardown()


def test_figures_are_rows_of_their_steps_once(run: Run) -> None:
    assert run.steps("train/loss") == list(range(STEPS))
    assert run.steps("val/miou_present") == [5, 11, 17]
    assert run.steps("speed/step_seconds")
    assert not run.steps("train/broken_steps")


def test_speed_counts_points_and_voxels(run: Run) -> None:
    figures = run.speed.latest
    assert 0 < figures["speed/data_share"] <= figures["speed/between_share"] < 1
    per_second = POINTS / figures["speed/step_seconds"]
    assert figures["speed/points_per_second"] == pytest.approx(per_second)
    assert figures["speed/voxels_per_second"] == pytest.approx(per_second / 4)
    assert figures["memory/peak_mib"] > 50


def test_lines_tell_steps_validations_and_the_test(run: Run) -> None:
    steps = [line for line in run.lines if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == ["5/20", "10/20", "15/20", "20/20"]
    assert all("loss " in line and "mIoU 0.25" in line and " left" in line for line in steps)
    validations = [line.split()[3] for line in run.lines if line.startswith("validation at step")]
    assert validations == ["6", "12", "18"]
    assert sum(line.startswith("test  mIoU") for line in run.lines) == 1
    assert sum(line.startswith("first step after") for line in run.lines) == 1
    assert len(run.lines) == 9
    parts = [run.start.start[name] for name in ("data", "kernels", "step")]
    assert run.start.start["all"] == pytest.approx(sum(parts), abs=0.005)


def test_checkpoints_hold_the_average_and_everything_to_go_on_with(run: Run) -> None:
    assert sorted(path.name for path in run.folder.glob("*.ckpt*")) == ["best.ckpt", "last.ckpt"]
    last = held(run.folder / "last.ckpt")
    assert last["global_step"] == STEPS
    assert last["pcnn_config"] == {"model": {"width": 0.5}}
    assert last["callbacks"]["RngState"]["seed"] == 3
    trained = last["current_model_state"]["net.weight"]
    assert torch.equal(trained, run.task.net.weight)
    assert not torch.equal(last["state_dict"]["net.weight"], trained)


def test_wandb_gets_clouds(run: Run) -> None:
    scans = {f"val/scan/{kind}" for kind in ("prediction", "truth")}
    assert scans | {"train/loss"} <= set(run.sent)
    assert all(isinstance(run.sent[key], wandb.Object3D) for key in scans)
    assert "SIMULATED" in str(run.sent["val/scan/truth"]._caption)
    assert list((run.folder / "wandb").glob("offline-run-*/files/media/object3D/**/*.pts.json"))

"""The pages about adding a data set and a task are enough: no other file changes."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from pcnn.experiment import build
from pcnn.experiment.check import checked
from pcnn.experiment.run import describe_data

ROOT = Path(__file__).parents[1]
SMALL = ("model.width=0.25", "trainer=cpu", "seed=1")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_lab"]:
        del sys.modules[name]


def write_files_of(page: str, folder: Path) -> None:
    """The code blocks of a page whose first line names a file."""
    text = (ROOT / "docs" / page).read_text()
    for path, content in re.findall(r"```(?:python|yaml)\n# (\S+/\S+)\n(.*?)```", text, re.DOTALL):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)


def composed(folder: Path, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        found = f"hydra.searchpath=[file://{folder / 'my_conf'}]"
        return checked(compose("train", [found, "allow_targets=[my_lab]", *overrides, *SMALL]))


def trained(cfg: DictConfig, folder: Path) -> tuple[L.Trainer, Any]:
    """Two steps and a validation of what a configuration describes."""
    data: Any = build.data(cfg)
    task = build.task(describe_data(cfg, data))
    trainer = L.Trainer(
        max_steps=2,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(task, data)
    return trainer, data


def test_a_data_set(lab: Path) -> None:
    write_files_of("adding_a_data_set.md", lab)
    rng = np.random.default_rng(0)
    for place in ("train/a", "train/b", "train/c", "val/d"):
        path = lab / "fields" / f"{place}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        points = rng.uniform(0, 3, (200, 4))
        np.savetxt(path, np.column_stack([points, points[:, 2] > 1.5]))
    options = ("dataset=fields", f"dataset.root={lab / 'fields'}", "dataset.voxel_size=0.3")
    for geometry in ("voxel", "point"):
        trainer, data = trained(composed(lab, *options, f"geometry={geometry}"), lab)
        assert trainer.global_step == 2
        assert (data.channels, data.class_names) == (("height",), ("ground", "crop"))
        assert [len(data.dataset(split)) for split in ("train", "val")] == [3, 1]
        assert math.isfinite(trainer.callback_metrics["val/miou"])
        (batch,) = data.val_dataloader()
        assert batch.names == ("d",)
        assert batch.point_labels.bincount().sum() == 200


def test_a_task(lab: Path) -> None:
    write_files_of("adding_a_task.md", lab)
    rng = np.random.default_rng(0)
    (lab / "scans").mkdir()
    for name in "abcdef":
        points = rng.uniform(-2, 2, (300, 4))
        np.save(lab / "scans" / f"{name}.npy", points.astype(np.float32))
        np.save(lab / "scans" / f"{name}_label.npy", np.zeros(300, np.int64))
    cfg = composed(
        lab,
        "experiment=remission",
        f"dataset.root={lab / 'scans'}",
        "dataset.class_names=[a,b]",
        "dataset.voxel_size=0.3",
        "dataset.num_workers=0",
        "dataset.batch_size=4",
        "task.power=1.0",
    )
    trainer, _ = trained(cfg, lab)
    assert trainer.global_step == 2
    assert trainer.lightning_module.power == 1.0
    assert 0 < float(trainer.callback_metrics["val/loss"]) < 100

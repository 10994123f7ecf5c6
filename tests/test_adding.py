"""The pages about adding a data set, a model, a task, an engine are enough: no file changes."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from typer.testing import CliRunner

import pcnn
from pcnn.cli.commands import app
from pcnn.experiment import build
from pcnn.experiment.predictor import Predictor
from pcnn.experiment.run import describe_data
from pcnn.experiment.run_config import checked
from pcnn.nn import Conv3d
from pcnn.ops.conformance import check_builder, check_dataflow
from tests.experiment.command import run

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
    block = r"```(?:python|yaml|cuda)\n(?:#|//) (\S+/\S+)\n(.*?)```"
    for path, content in re.findall(block, text, re.DOTALL):
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


def write_scans(folder: Path, names: str) -> None:
    """A cloud of 300 points `x y z intensity`, all of the first class, for each letter."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name in names:
        points = rng.uniform(-2, 2, (300, 4))
        np.save(folder / f"{name}.npy", points.astype(np.float32))
        np.save(folder / f"{name}_label.npy", np.zeros(300, np.int64))


def test_a_model(lab: Path) -> None:
    write_files_of("adding_a_model.md", lab)
    write_scans(lab / "scans", "abcd")
    own = ("hydra.searchpath=[file://my_conf]", "allow_targets=[my_lab]", "trainer=cpu")
    train = (
        "model=shallow_unet model.channels=4 "
        "dataset=folder dataset.root=scans dataset.class_names=[a,b] dataset.voxel_size=0.5 "
        "dataset.num_workers=0 geometry=point trainer.max_steps=2 logger=csv "
        "hydra.run.dir=run"
    )
    run("train.py", *own, *train.split(), cwd=lab)
    wrong = run("train.py", *own, *train.split(), "model.chanels=4", cwd=lab, expect=2)
    assert "model.chanels" in wrong.stderr
    checkpoint = lab / "run" / "checkpoints" / "last.ckpt"  # it ends before it validates
    run("eval.py", *own, f"ckpt_path={checkpoint}", "logger=csv", "hydra.run.dir=eval", cwd=lab)
    assert "test/miou" in json.loads((lab / "eval" / "metrics.json").read_text())["metrics"]

    predictor = Predictor.load(checkpoint, torch.device("cpu"), ["my_lab"])
    assert type(predictor.net).__name__ == "ShallowUNet"
    options = [checkpoint, lab / "scans" / "a.npy", "--out", lab / "out", "--device", "cpu"]
    words = ["predict", *map(str, options), "--allow-targets", "my_lab"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert np.load(lab / "out" / "a_label.npy").shape == (300,)


@pytest.mark.parametrize(
    ("words", "owner"),
    [
        ("experiment=remission task.power=1.0", ""),
        ("task/loss=focal task.loss.power=1.0 dataset=folder", "loss"),
    ],
)
def test_a_task_and_a_loss(lab: Path, words: str, owner: str) -> None:
    write_files_of("adding_a_task.md", lab)
    write_scans(lab / "scans", "abcdef")
    options = f"{words} dataset.root={lab / 'scans'} dataset.class_names=[a,b] "
    options += "dataset.voxel_size=0.3 dataset.num_workers=0 dataset.batch_size=4"
    trainer, _ = trained(composed(lab, *options.split()), lab)
    assert trainer.global_step == 2
    module: Any = trainer.lightning_module
    assert (getattr(module, owner) if owner else module).power == 1.0
    assert 0 < float(trainer.callback_metrics["val/loss"]) < 100
    focal = importlib.import_module("my_lab.focal").Focal(power=0)
    logits, target = torch.randn(9, 4), torch.tensor([0, 1, 2, 3, 255, 255, 1, 1, 0])
    expected = torch.nn.functional.cross_entropy(logits, target, ignore_index=255)
    torch.testing.assert_close(focal(logits, target), expected)
    assert focal(logits, torch.full((9,), 255)) == 0


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_an_engine_and_a_kernel(lab: Path, device: str, request: pytest.FixtureRequest) -> None:
    for page in ("adding_an_engine.md", "adding_a_kernel.md"):
        write_files_of(page, lab)
    engine = importlib.import_module("my_lab.engine").ENGINE
    check_builder(engine.builder, torch.device(device))
    check_dataflow(engine.dataflow, torch.device(device))
    points = pcnn.native_points(torch.rand(50, 3), torch.randn(50, 4), voxel_size=0.3).to(device)
    layers = [Conv3d(4, 5, 3, engine=one).to(device) for one in (engine, "reference")]
    layers[1].load_state_dict(layers[0].state_dict())
    mine, theirs = (layer(points).features for layer in layers)
    torch.testing.assert_close(mine, theirs)
    if device == "cpu":
        request.getfixturevalue("emulated")
    builder = importlib.import_module("my_lab.kernel_search").KernelSearch()
    check_builder(builder, torch.device(device))

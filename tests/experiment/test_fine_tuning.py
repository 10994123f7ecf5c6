"""Trainings that begin with given weights: a new head, frozen layers, rates by depth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

import pcnn
from pcnn.callbacks import stop_signals
from pcnn.checkpoints import RunCheckpoint
from pcnn.checkpoints.exported_file import write_exported
from pcnn.errors import ConfigError, FileError
from pcnn.experiment import build
from pcnn.experiment.predictor import Predictor
from pcnn.experiment.resume import Run
from pcnn.experiment.run import execute
from pcnn.experiment.run_config import checked
from pcnn.tasks import SegmentationTask
from tests.cli.invoking import invoke
from tests.experiment.sweep import composed
from tests.experiment.tiny_kitti import write_tiny_kitti

TINY = (
    *("model.width=0.0625", "dataset.train_sequences=[0]", "dataset.voxel_size=1.0"),
    *("dataset.num_workers=0", "dataset.cache=false", "trainer=cpu", "trainer.max_steps=2"),
    *("trainer.val_check_interval=2", "logger=[csv]", "callbacks=plain", "engine=reference"),
)

REST = {"freeze": [], "layer_decay": 1.0}


def network(classes: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return pcnn.models.MinkUNet42(4, classes, width=0.0625, engine="reference")


def task(net: nn.Module, classes: int) -> SegmentationTask:
    optimizer: Callable[..., Any] = partial(torch.optim.SGD, lr=0.1)
    constant = partial(torch.optim.lr_scheduler.ConstantLR, factor=1.0)
    names = [str(number) for number in range(classes)]
    loss = nn.CrossEntropyLoss(ignore_index=255)
    return SegmentationTask(net, names, loss, optimizer, lambda o, total_steps: constant(o))


def weights_in(folder: Path, net: nn.Module) -> str:
    config = {"model": {"name": "minkunet", "width": 0.0625}}
    path = folder / "given.safetensors"
    write_exported(path, net.state_dict(), {"pcnn_config": config, "global_step": 1})
    return str(path)


def test_weights_by_name_and_shape(tmp_path: Path) -> None:
    given, own = network(19, 1), network(5, 2)
    head = {name: value.clone() for name, value in own.named_parameters() if "head" in name}
    path = weights_in(tmp_path, given)
    cfg = OmegaConf.create({"init_from": path, "model": {"name": "minkunet"}, **REST})
    learner = task(own, 5)
    (told,) = build.fine_tuned(learner, cfg, begins=True)
    assert "weights taken; new: head.module.weight, head.module.bias" in told
    theirs = given.state_dict()
    for name, value in own.state_dict().items():
        assert torch.equal(value, head[name] if name in head else theirs[name]), name
    assert build.fine_tuned(task(network(5, 3), 5), cfg, begins=False) == []
    other = pcnn.models.MinkUNet42(4, 5, width=0.125, engine="reference")
    with pytest.raises(ConfigError, match="init_from"):
        build.initialised(other, cfg)
    with pytest.raises(FileNotFoundError, match="no weights of that name"):
        build.initialised(own, OmegaConf.create({"init_from": "nowhere"}))
    broken = {name: value * torch.nan for name, value in given.named_parameters()}
    write_exported(Path(path), broken, {})
    with pytest.raises(FileError, match="NaN"):
        build.initialised(own, cfg)


def test_a_run_begins_with_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pcnn.experiment.run.tell_other_ranks", lambda folder: None)
    data = write_tiny_kitti(tmp_path / "kitti", {0: 2, 8: 2}, points=150)

    def run(name: str, *words: str) -> dict[str, Tensor]:
        cfg = checked(composed(*TINY, f"dataset.root={data}", *words))
        with stop_signals() as stop:
            execute(Run(cfg, tmp_path / name), stop)
        return RunCheckpoint.read(tmp_path / name / "checkpoints/last.ckpt", mmap=False).weights

    first = run("first")
    words = ("freeze=[stem,input]", "layer_decay=0.8", "task.optimizer.lr=0.01")
    given = f"init_from={tmp_path / 'first/checkpoints/last.ckpt'}"
    second = run("second", given, *words)
    for name, value in first.items():
        if name.startswith(("stem", "input")):
            assert torch.equal(second[name], value), name
    head = "head.module.weight"
    assert not torch.equal(second[head], first[head])
    config = RunCheckpoint.read(tmp_path / "second/checkpoints/last.ckpt").config
    assert (config["freeze"], config["layer_decay"]) == (["stem", "input"], 0.8)
    last = tmp_path / "second/checkpoints/last.ckpt"
    invoke("export", last, tmp_path / "a.safetensors", "--temperature", "1.5")
    assert Predictor.load(tmp_path / "a.safetensors", torch.device("cpu")).temperature == 1.5
    with pytest.raises(ConfigError, match="freeze"):
        run("third", "freeze=[nothing]")

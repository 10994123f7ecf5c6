"""A mistake in a command line ends in at most three lines that name what is possible."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import train
from pcnn.experiment.short_errors import short_errors
from tests.experiment.command import run

CASES = {
    "model=minkunett": ("Did you mean minkunet?",),
    "engine=pointcnnp": ("engine=pointcnnp is not available", "auto, minuet, pointcnnpp"),
    "engine=pointcnnpp": ("does not serve voxels", "auto, reference", "geometry=point"),
    "geometry=point engine=spira": ("not serve native points", "auto, reference, pointcnnpp"),
    "engine=spira trainer=cpu": ("engine 'spira'", "device is cpu", "auto, reference"),
    "geometry=point geometry.sites=corner": ("geometry.sites=corner", "nearest, cell_origin"),
    "geometry=point geometry.thin=thick": ("geometry.thin=thick", "a number"),
    "geometry=point geometry.thin=0": ("geometry.thin=0", "a number above 0"),
    "geometry=point +geometry.color=1": ("keys of geometry", "outside"),
    "model=sparse_resnet task=registration": (
        "possible: model=sparse_resnet task=segmentation, classification",
        "task=registration is served by: model=fpfh, minkunet, resunet",
    ),
    "model=resnet18": ("dataset=kitti does not serve task=classification", "dataset=s3dis"),
    "model=resnet18 task=segmentation": ("does not serve", "model=resnet18 task=classification"),
    "model=fpfh": ("nothing to train", "python eval.py model=fpfh"),
    "dataset=threedmatch": ("does not serve task=segmentation", "dataset=folder, kitti, s3dis"),
    "dataset=folder": ("dataset.root",),
    "dataset=folder dataset.root=.": ("either classes, a YAML file", "or class_names"),
    "dataset=folder dataset.root=. dataset.classes=no.yaml": ("no.yaml: no such class file",),
    "experiment=nonsense": ("semantic_kitti_minkunet",),
    "trainer.max_stesp=3": ("Did you mean trainer.max_steps",),
    "modle=minkunet": ("Did you mean model?",),
    "model.widht=1": ("Did you mean model.width",),
    "dataset.simulate.scans=1": ("train_scans",),
    "+seeed=3": ("Did you mean seed?",),
    "+model.widht=1": ("Did you mean width?",),
    "+task.optimizer.learning=1": ("keys of task.optimizer",),
    "trainer.max_steps=1.5": ("trainer.max_steps=1.5", "a whole number"),
    "trainer.precision=fp8": ("bf16-mixed",),
    "trainer.max_steps=-1": ("trainer.max_epochs",),
    "seed=abc": ("seed", "a whole number"),
    "train=perhaps": ("train", "true or false"),
    "dataset.train_sequences=all": ("dataset.train_sequences=all", "a whole number"),
    "trainer.max_steps==3": ("trainer.max_steps==3",),
    "nonsense": ("nonsense",),
    "train=false": ("nothing to do", "test=true"),
    "train=false test=true": ("ckpt_path", "there are no trained weights"),
    "train=false test=true ckpt_path=nowhere.ckpt": ("nowhere.ckpt", "no such file"),
    "ckpt_path=some.ckpt": ("resume=RUN",),
    "resume=nowhere": ("nowhere", "config.yaml"),
    "dataset.root=nowhere": ("nowhere",),
    "dataset.labels=mine": ("official", "spvnas_compat"),
    "dataset.batch_size=1 dataset.root=kitti dataset.train_sequences=[0]": ("kitti/sequences",),
    "dataset.voxel_size=0": ("dataset.voxel_size=0", "a number above 0"),
    "dataset.simulate.train_scans=-1": ("dataset.simulate.train_scans=-1", "from 0"),
    "logger=null": ("logger=null", "csv", "logger=[] for none"),
    "+logger.csv=3": ("logger.csv=3",),
    "seed=-1": ("seed=-1", "from 0"),
    "task.optimizer.lr=nan": ("task.optimizer.lr=nan", "a number above 0"),
    "task.optimizer._target_=torch.optim.Adamm": ("task.optimizer._target_=torch.optim.Adamm",),
    "trainer.max_steps=0": ("trainer.max_steps=0", "from 1"),
    "trainer.gradient_clip_val=-1": ("trainer.gradient_clip_val=-1", "of 0 or more"),
    "trainer.strategy=text": ("trainer.strategy=text", "invalid strategy"),
    "trainer.max_time=text": ("trainer.max_time=text", "DD:HH:MM:SS"),
    "model.tasks=null": ("model.tasks=null", "text"),
}


@pytest.mark.parametrize("command", CASES)
def test_short_message(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "kitti" / "sequences" / "00" / "velodyne").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", *command.split()])
    with pytest.raises(SystemExit) as stopped, short_errors(train.CONF):
        train.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert 1 <= len(said.splitlines()) <= 3, said
    for word in CASES[command]:
        assert word in said, said
    assert not list(tmp_path.glob("logs/*/*")), "a run folder was left behind"


def test_programming_errors_keep_their_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cfg: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr("pcnn.experiment.run.prepare", lambda *arguments: broken(None))
    with pytest.raises(ZeroDivisionError), short_errors(train.CONF):
        train.main()


def test_as_a_program(tmp_path: Path) -> None:
    done = run("train.py", "trainer.max_stesp=3", cwd=tmp_path, expect=2)
    assert len(done.stderr.splitlines()) <= 3
    assert "trainer.max_steps" in done.stderr
    assert done.stdout == ""


def test_a_logger_whose_package_is_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pcnn.experiment.arguments.find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "logger=tensorboard"])
    with pytest.raises(SystemExit), short_errors(train.CONF):
        train.main()
    said = capsys.readouterr().err
    assert said.startswith("logger.tensorboard needs the package tensorboard")
    assert "pip install 'pcnn3d[tensorboard]'" in said
    assert len(said.splitlines()) == 2

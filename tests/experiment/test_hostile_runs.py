"""`resume=` of somebody else's run folder writes, reads and calls nothing outside of it."""

from __future__ import annotations

import copy
import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig

from pcnn.errors import ConfigError, FileError, UserError
from pcnn.experiment import build, run_folder
from pcnn.experiment.resume import continuation
from pcnn.experiment.run_config import checked
from pcnn.experiment.stored_options import is_kept, with_stored_options
from tests.experiment.sweep import CONF, composed

ROOT = "dataset.root=kitti"
WORDS = ("trainer=cpu", "logger=[csv]")


@cache
def good() -> dict[str, Any]:
    config = run_folder.recorded(checked(composed(ROOT, "model.width=0.125", "trainer=cpu")))
    config["data"] = {"source": "real", "in_channels": 4, "out_channels": 19}
    config["words"] = list(WORDS)
    return config


def folder_with(root: Path, changes: Mapping[str, Any]) -> Path:
    """A run folder; `ELSEWHERE` stands for a folder beside it."""
    config = copy.deepcopy(good())
    for key, value in changes.items():
        *parents, last = key.split(".")
        node = config
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = yaml.safe_load(yaml.safe_dump(value).replace("ELSEWHERE", f"{root}/elsewhere"))
    folder = root / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (root / "elsewhere").mkdir()
    (folder / run_folder.CONFIG).write_text(yaml.safe_dump(config))
    return folder


def resumed(folder: Path, *words: str) -> DictConfig:
    """The configuration that a resumed run has."""
    words = tuple(with_stored_options([f"resume={folder}", *words], CONF))
    return checked(continuation(composed(*words), words).cfg)


PROFILER = "lightning.pytorch.profilers.SimpleProfiler"


@cache
def our_own() -> dict[str, Any]:
    """What a resumed run has of a good folder."""
    with tempfile.TemporaryDirectory() as root:
        return run_folder.recorded(resumed(folder_with(Path(root), {}))) | {"resume": None}


#: By a name, keys of a stored configuration that reach out of the run.
CASES: Mapping[str, Mapping[str, Any]] = {
    "profiler": {
        "trainer.profiler": {"_target_": PROFILER, "dirpath": "ELSEWHERE", "filename": "x"}
    },
    "checkpoints_of_another_run": {"callbacks.checkpoint.folder": "../other/checkpoints"},
    "csv": {"logger.csv.save_dir": "ELSEWHERE"},
    "words_of_its_own": {"trainer.strategy": "fsdp", "callbacks.checkpoint.folder": "other"},
    "wandb_server": {
        "logger.wandb": {
            "_target_": "pcnn.loggers.RunWandbLogger",
            "settings": {"base_url": "http://192.0.2.1"},
        }
    },
    "run_dir": {"hydra": {"run": {"dir": "ELSEWHERE"}}},
    "allowed": {"allow_targets": ["os"]},
    "weights_elsewhere": {"init_from": "ELSEWHERE/a.ckpt"},
    "predictions": {"predictions": "ELSEWHERE"},
    "cache": {"dataset.data_dir": "ELSEWHERE"},
    "words": {
        "words": [
            *WORDS,
            *("callbacks=../evil", "callbacks=a b", "trainer=cpu,ddp", "experiment=/evil"),
            *("callbacks.checkpoint.folder=other", "+callbacks.more={_target_:os.system}"),
            *("trainer.strategy=fsdp", "trainer._target_=x.y", "+trainer.x.y@z=3"),
            *("logger.wandb.log_model=true", "logger.csv.save_dir=ELSEWHERE"),
            *("allow_targets=[os]", "hydra.run.dir=ELSEWHERE", "init_from=ELSEWHERE/a.ckpt"),
            *("tags=[a b", "--multirun", ""),
        ]
    },
}
#: Refused by name: the network and its data may not name such places either.
REFUSED: Mapping[str, Mapping[str, Any]] = {
    "data_of_a_server": {"dataset.root": "http://192.0.2.1/kitti"},
    "shards_by_reference": {"dataset.shards": "reference://x"},
    "layers": {"engine.layers": "ELSEWHERE/layers.yaml"},
    "secret": {"dataset.root": "${oc.env:HOME}"},
    "reader": {"model": {"name": "minkunet", "_target_": "pcnn.models.load", "model": "ELSEWHERE"}},
}


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a server was called")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.chdir(tmp_path)


def files(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", CASES)
def test_what_runs_beside_a_network_is_our_own(name: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, CASES[name])
    before = files(tmp_path)
    cfg = resumed(folder)
    callbacks = build.beside("callbacks", cfg, folder, {"run_folder": folder, "config": {}})
    loggers = build.beside("logger", cfg, folder, {"run_folder": folder, "config": {}})
    trainer = build.trainer(cfg, folder, callbacks, loggers)
    assert Path(trainer.default_root_dir) == folder
    assert trainer.profiler.dirpath is None
    for one in (*callbacks, *loggers):
        for key in ("folder", "path", "save_dir"):
            place = getattr(one, key, None)
            assert place is None or Path(place).resolve().is_relative_to(folder)
    others = run_folder.recorded(cfg)
    assert str(tmp_path / "elsewhere") not in str(others)
    assert others | {"resume": None} == our_own()
    assert files(tmp_path / "elsewhere") == {}
    assert {path: at for path, at in files(tmp_path).items() if path in before} == before


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_and_its_data_lead_nowhere_else(name: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, REFUSED[name])
    with pytest.raises(UserError):
        resumed(folder)
    assert files(tmp_path / "elsewhere") == {}


LINKS: Mapping[str, Callable[[Path], Path]] = {
    "the checkpoints": lambda run: run / "checkpoints",
    "a checkpoint": lambda run: run / "checkpoints/last.ckpt",
    "the figures": lambda run: run / "metrics.json",
}


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("exists", [True, False])
def test_links_that_lead_out_are_refused(name: str, exists: bool, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, {})
    link = LINKS[name](folder)
    if link.exists():
        link.rmdir()
    link.symlink_to(tmp_path / ("elsewhere" if exists else "absent"))
    with pytest.raises(FileError) as refused:
        resumed(folder)
    assert Path(refused.value.path) == link
    link.unlink()
    (folder / "inside").mkdir()
    link.symlink_to(folder / "inside", target_is_directory=True)
    if name not in ("a checkpoint", "the figures"):
        assert resumed(folder).model.width == 0.125
    link.unlink()
    link.symlink_to(os.path.basename(link))  # to itself
    with pytest.raises(UserError):
        resumed(folder)


@pytest.mark.parametrize("name", sorted(one.stem for one in (CONF / "experiment").glob("*.yaml")))
def test_every_recipe_goes_on_as_it_was(name: str, tmp_path: Path) -> None:
    words = [f"experiment={name}", ROOT, "model.width=0.5", "trainer.max_steps=7", "logger=csv"]
    words += ["dataset.class_names=[ground,roof]"] if name == "seg_aerial" else []
    begun = run_folder.recorded(checked(composed(*words)))
    begun |= {"words": list(filter(is_kept, words)), "data": good()["data"]}
    (tmp_path / run_folder.CONFIG).write_text(yaml.safe_dump(begun))
    found = run_folder.recorded(resumed(tmp_path))
    assert found | {"resume": None, "words": begun["words"]} == begun


def test_the_same_word_goes_on_where_the_machine_chose_another_value(tmp_path: Path) -> None:
    word = "trainer.precision=16-mixed"
    folder = folder_with(tmp_path, {"trainer.precision": "32-true", "words": [*WORDS, word]})
    assert resumed(folder, word).trainer.precision == "16-mixed"  # which a CPU turns down again


def test_a_configuration_that_has_changed_since_is_told(tmp_path: Path) -> None:
    for key, value in {"trainer.max_steps": 77, "callbacks.ema.decay": 0.5}.items():
        folder = folder_with(tmp_path / key, {key: value, "callbacks.of_old": {"number": 3}})
        with pytest.raises(ConfigError) as refused:
            resumed(folder)
        assert refused.value.key == key
        resumed(folder, f"{key}={value}")


def test_numbers_of_a_run_go_on_with_it(tmp_path: Path) -> None:
    numbers = {
        "trainer.max_steps": 1234,
        "trainer.precision": "bf16-mixed",
        "trainer.gradient_clip_val": None,
        "callbacks.checkpoint.checkpoint_every": 7,
        "callbacks.checkpoint.monitor": "val/loss",
        "callbacks.pictures": None,
        "logger.csv.flush_logs_every_n_steps": 3,
    }
    words = [f"++{key}={'null' if value is None else value}" for key, value in numbers.items()]
    folder = folder_with(tmp_path, {**numbers, "words": [*WORDS, *words]})
    cfg = resumed(folder)
    for key, value in numbers.items():
        group, _, rest = key.partition(".")
        node: Any = cfg[group]
        for name in filter(None, rest.split(".")):
            node = node[name]
        assert node == value, key
    assert list(cfg.logger) == ["csv"]
    assert resumed(folder, "trainer.max_steps=9999").trainer.max_steps == 9999
    words = ["logger.csv.name=mine", f"dataset.data_dir={tmp_path}", "dataset.root=moved"]
    cfg = resumed(folder, *words)
    assert (cfg.logger.csv.name, cfg.dataset.data_dir) == ("mine", str(tmp_path))
    assert cfg.dataset.root == "moved"
    for word in ("model.width=1.0", "trainer.gradient_clip_val=3", "seed=5", "model=spvcnn"):
        with pytest.raises(UserError) as refused:
            resumed(folder, word)
        assert getattr(refused.value, "key", "") == word.partition("=")[0]

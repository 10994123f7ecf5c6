"""No configuration in a file runs anything: it is refused, or what it says is not read."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from pcnn.checkpoints import CheckpointError, RunCheckpoint
from pcnn.config import check_allowed, looked_up, make, stored
from pcnn.datasets.labels import read_classes
from pcnn.datasets.readers.fragments import read_fragment
from pcnn.errors import ConfigError, FileError, UserError
from pcnn.experiment import networks, run_folder, weights
from pcnn.experiment.run_config import checked
from pcnn.experiment.stored_options import with_stored, with_stored_options
from pcnn.files.pickles import STAND_INS, array_of, read_pickle
from tests.experiment import payload
from tests.experiment.hostile import CASES, HERE, with_case
from tests.experiment.sweep import CONF, composed

SECRET = "the-secret-of-this-machine"
#: Groups that are read; of others nothing reaches the run.
READ = ("model", "geometry", "engine", "task", "dataset", "augment", "tta", "seed", "data")
#: Keys of these groups whose places are this machine's to say.
NOT_READ = ("dataset.data_dir",)
#: Values that no file may hold, wherever they stand.
NOWHERE = ("environment_in_a_text",)


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "evil_on_import.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SECRET", SECRET)
    OmegaConf.register_new_resolver("fire", payload.fire, replace=True)
    payload.RAN.clear()
    yield
    OmegaConf.clear_resolver("fire")
    assert payload.RAN == []
    assert "evil_on_import" not in sys.modules
    assert not (tmp_path / "marker").exists()


@cache
def good() -> dict[str, Any]:
    config = run_folder.recorded(checked(composed("dataset.root=kitti", "model.width=0.125")))
    config["data"] = {"source": "real", "in_channels": 4, "out_channels": 19}
    return config


def resumed(config: Any, path: Path) -> dict[str, Any]:
    """What a run takes of a stored configuration, its network made."""
    cfg = checked(with_stored(composed(), config, (), path))
    networks.network(cfg, 4, 19)
    return run_folder.recorded(cfg)


def test_the_good_one_is_taken(tmp_path: Path) -> None:
    found = resumed(good(), tmp_path)
    assert found["model"]["width"] == 0.125
    assert found["dataset"]["root"] == "kitti"


@pytest.mark.parametrize("name", CASES)
def test_hostile_configurations(name: str, tmp_path: Path) -> None:
    key, config = CASES[name][0], with_case(good(), name, tmp_path / "marker")
    read = key.partition(".")[0] in READ and key not in NOT_READ
    if read:
        with pytest.raises((FileError, ConfigError)) as refused:
            resumed(config, tmp_path)
        assert SECRET not in str(refused.value)
        assert len(str(refused.value)) < 1000
    elif name in NOWHERE:
        with pytest.raises(FileError):
            stored(config, tmp_path)
    else:
        assert resumed(config, tmp_path) == resumed(good(), tmp_path)


def checkpoint(path: Path, config: Any) -> Path:
    torch.save({"state_dict": {}, "global_step": 1, "pcnn_config": config}, path)
    return path


NAN = float("nan")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset.voxel_size", None),
        ("dataset.voxel_size", [None, None, None]),
        ("dataset.crop", "far"),
        ("data.colors", [[0, 0, 256]]),
        ("data.class_names", "road"),
        ("data.temperature", NAN),
        ("data.in_channels", None),
        ("model.name", 3),
    ],
)
def test_values_of_checkpoints_are_checked_and_the_file_is_named(
    key: str, value: Any, tmp_path: Path
) -> None:
    config = {**good(), "data": {**good()["data"], "class_names": ["a"], "colors": [[0, 0, 0]]}}
    path = checkpoint(tmp_path / "a.ckpt", config)
    assert weights.read_config(path)["model"]["width"] == 0.125
    group, _, name = key.partition(".")
    path = checkpoint(tmp_path / "b.ckpt", {**config, group: {**config[group], name: value}})
    with pytest.raises(FileError) as refused:
        weights.read_config(path)
    assert refused.value.path == path
    assert key in refused.value.rule


def test_pickles_that_run_something_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.save({"pcnn_config": payload.Reduced()}, path)
    with pytest.raises(CheckpointError) as refused:
        RunCheckpoint.read(path)
    assert "weights_only" not in str(refused.value)  # no advice to switch the protection off
    (tmp_path / "pairs.pkl").write_bytes(pickle.dumps([payload.Reduced()]))
    with pytest.raises(FileError):
        read_pickle(tmp_path / "pairs.pkl")
    torch.save(payload.Reduced(), tmp_path / "cloud.pth")
    with pytest.raises(FileError):
        read_fragment(tmp_path / "cloud.pth")


@pytest.mark.parametrize("name", ["_reconstruct", "scalar"])
@pytest.mark.parametrize("state", [{"__defaults__": (1,)}, (None, {"__defaults__": (1,)})])
def test_a_pickle_changes_nothing_of_its_reader(name: str, state: Any, tmp_path: Path) -> None:
    before = {key: vars(value).copy() for key, value in STAND_INS.items()}
    defaults = {key: getattr(value, "__defaults__", None) for key, value in STAND_INS.items()}
    named = f"cnumpy.core.multiarray\n{name}\n".encode()
    (tmp_path / "a.pkl").write_bytes(named + pickle.dumps(state, 0)[:-1] + b"b.")
    with pytest.raises(FileError):
        read_pickle(tmp_path / "a.pkl")
    (tmp_path / "a.pkl").write_bytes(named + b".")  # nor does it hand one out
    with pytest.raises(FileError):
        read_pickle(tmp_path / "a.pkl")
    assert {key: vars(value).copy() for key, value in STAND_INS.items()} == before
    assert {key: getattr(value, "__defaults__", None) for key, value in STAND_INS.items()} == (
        defaults
    )
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"a": np.arange(3.0), "b": np.float64(2)}))
    found = read_pickle(tmp_path / "a.pkl")
    assert (array_of(found["a"]).tolist(), found["b"]) == ([0, 1, 2], 2)


@pytest.mark.parametrize(
    "text",
    [
        "model: !!python/object/apply:os.system ['touch marker']",
        "model: !!python/object/apply:pathlib.Path [marker]",
        "model: !!python/name:tests.experiment.payload.fire",
        "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nmodel: {width: '${fire:1}', all: [*b, *b]}",
        "model: " + "[" * 400,
        "- no mapping",
    ],
)
def test_run_folders_hold_plain_yaml(tmp_path: Path, text: str) -> None:
    (tmp_path / run_folder.CONFIG).write_text(text)
    with pytest.raises(UserError):
        run_folder.load_config(tmp_path)
    (tmp_path / "classes.yaml").write_text(text.replace("model", "names"))
    with pytest.raises((ValueError, RecursionError)):
        read_classes(tmp_path / "classes.yaml")


@pytest.mark.parametrize("name", ["../../evil", "/evil", "evil hydra.run.dir=x", "a,b", ["a", "b"]])
def test_a_name_in_a_file_becomes_no_other_word(name: Any, tmp_path: Path) -> None:
    (tmp_path / "conf/model").mkdir(parents=True)
    (tmp_path / "evil.yaml").write_text("_target_: os.system")
    groups = ("model", "dataset", "task", "geometry", "engine")
    config = {**good(), **{key: {**good()[key], "name": str(name)} for key in groups}}
    config["words"] = [f"trainer={name}", f"logger=[{name} ]", f"+callbacks={name}"]
    file = checkpoint(tmp_path / "a.ckpt", config)
    (tmp_path / run_folder.CONFIG).write_text(OmegaConf.to_yaml(config))
    for words in ([f"ckpt_path={file}"], [f"resume={tmp_path}"]):
        if str(name) in ("../../evil", "/evil") and words[0].startswith("ckpt"):
            with pytest.raises(FileError):
                with_stored_options(words, tmp_path / "conf")
        else:
            assert with_stored_options(words, tmp_path / "conf") == words
    assert with_stored_options(["resume=auto"], CONF) == ["resume=auto"]


def test_allowed_packages_come_from_the_command_line_alone() -> None:
    check_allowed([HERE], [f"allow_targets=[{HERE}]"])
    for packages, words in (([HERE], ["experiment=evil"]), (["os."], ["allow_targets=[os.]"])):
        with pytest.raises(ConfigError) as refused:
            check_allowed(packages, words)
        assert refused.value.key == "allow_targets"
    assert "allow_targets" not in run_folder.recorded(composed(f"allow_targets=[{HERE}]"))


def test_classes_of_the_users_own() -> None:
    node = {
        "_target_": f"{HERE}.Plain",
        "out_channels": 3,
        "loss": {"_target_": f"{HERE}.Plain", "out_channels": 2},
    }
    with pytest.raises(ConfigError):
        make(node, "model")
    made = make(node, "model", ["tests"])
    assert (made.out_channels, made.loss.out_channels) == (3, 2)
    make({"_target_": f"{HERE}.Loss"}, "task.loss", [HERE])
    assert payload.RAN == ["Loss"]  # so a payload that is let in does say that it ran
    payload.RAN.clear()
    for other in ("L.Trainer", "CSVLogger", "RAN", "torch.load", "absent", "_Fires.__new__"):
        with pytest.raises(ConfigError):
            looked_up(f"{HERE}.{other}", "model", [HERE])

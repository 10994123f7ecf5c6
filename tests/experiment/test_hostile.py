"""No configuration in a file runs anything, in any program that reads one."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from typer.testing import CliRunner

from pcnn.callbacks import stop_signals
from pcnn.cli.commands import app
from pcnn.cli.options import composed as composed_by_cli
from pcnn.dataflows import tuning_file
from pcnn.datasets.labels import read_classes
from pcnn.datasets.readers.fragments import read_fragment
from pcnn.datasets.registration.pair_lists import read_pickle
from pcnn.errors import UserError
from pcnn.experiment import networks, run_folder
from pcnn.experiment.check import checked
from pcnn.experiment.checkpoint_options import with_checkpoint_options
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.evaluate import evaluate
from pcnn.experiment.places import PLACES, RENAMED, SPLIT_UP, Place
from pcnn.experiment.resume import continuation
from pcnn.experiment.run import Run, execute, train
from pcnn.experiment.targets import check_allowed, construct, looked_up, verified
from pcnn.loggers import stored_run_id
from tests.experiment import payload
from tests.experiment.hostile import CASES, HERE, with_case
from tests.experiment.sweep import CONF, composed, composed_with_hydra
from tests.experiment.tiny_kitti import write_tiny_kitti

SECRET = "the-secret-of-this-machine"
TINY = (
    *("model.width=0.0625", "dataset.train_sequences=[0]", "dataset.voxel_size=1.0"),
    *("dataset.num_workers=0", "dataset.cache=false", "trainer=cpu", "trainer.max_steps=1"),
    *("trainer.val_check_interval=1", "logger=[csv]"),
    "callbacks.pictures=null",
)
#: Of a network for registration, whose checkpoints other commands read.
REGISTRATION: dict[str, Any] = {
    "model": {
        "name": "resunet",
        "_target_": "pcnn.models.ResUNetBN2C",
        "width": 0.125,
        "first_kernel": 3,
    },
    "geometry": {"_target_": "pcnn.datasets.OnVoxels", "name": "voxel"},
    "engine": {"name": "auto"},
    "task": {"name": "registration"},
    "dataset": {"name": "threedmatch"},
    "seed": 0,
    "data": {"source": "simulated", "in_channels": 1, "out_channels": 8, "voxel_size": 0.1},
}
#: Groups that make a network and what puts clouds before it.
NETWORK = ("model", "geometry")
#: Keys that no configuration in a file has, and values that none has.
NEVER = ("hydra", "hydra/launcher", "defaults", "allow_targets", "tags", "seed", "optimized_metric")
#: Cases that no reader takes, wherever they stand.
SHAPES = {
    *("endless", "bomb", "deep", "key_that_is_no_name", "value_that_is_no_plain_one", "missing"),
    *("environment", "resolver", "node"),
}
Reader: TypeAlias = "Callable[[Path, Any], str | None]"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data, a run of one step in `run`, and a hostile module that can be imported."""
    root = tmp_path_factory.mktemp("hostile")
    (root / "evil_on_import.py").write_text(f"open({str(root / 'marker')!r}, 'w')\n")
    data = write_tiny_kitti(root / "kitti", {0: 2, 8: 1}, points=150)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.syspath_prepend(str(root))
        patch.setenv("SECRET", SECRET)
        patch.setattr("pcnn.experiment.run.tell_other_ranks", lambda folder: None)
        OmegaConf.register_new_resolver("fire", payload.fire, replace=True)
        with stop_signals() as stop:
            execute(Run(checked(composed(*TINY, f"dataset.root={data}")), root / "run"), stop)
        yield root
        OmegaConf.clear_resolver("fire")


@pytest.fixture(autouse=True)
def nothing_runs(place: Path) -> Iterator[None]:
    payload.RAN.clear()
    before = {path for path in place.parent.rglob("*") if "lightning_logs" not in path.parts}
    yield
    assert payload.RAN == []
    assert "evil_on_import" not in sys.modules
    assert not (place / "marker").exists()
    for path in {*place.parent.rglob("*")} - before:
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


@cache
def content(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(folder / "run/checkpoints/last.ckpt", weights_only=True)
    return {**loaded, "optimizer_states": []}  # no reader here goes on with the training


@cache
def registration_state() -> dict[str, Any]:
    net = networks.network(OmegaConf.create(REGISTRATION), 1, 8)
    return {f"net.{name}": value for name, value in net.state_dict().items()}


def checkpoint(place: Path, config: Any) -> Path:
    path = place / "hostile.ckpt"
    torch.save({**content(place), "pcnn_config": config}, path)
    return path


def registration_checkpoint(place: Path, config: Any) -> Path:
    path = place / "hostile.pt"
    state = {"state_dict": registration_state(), "pcnn_config": config, "global_step": 1}
    torch.save(state, path)
    return path


def by_cli(*words: object) -> str | None:
    """The refusal of a command; None where it does its work."""
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "2000"})
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert SECRET not in done.output
    return done.output if done.exit_code else None


def of_program(name: str, folder: Path, *words: str) -> DictConfig:
    """The configuration of a command line, as `hydra.main` hands it over."""
    cfg = composed_with_hydra(name, words).copy()
    with open_dict(cfg):
        cfg.hydra.runtime.output_dir = str(folder)
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


def predict(place: Path, config: Any) -> str | None:
    cloud = np.random.default_rng(0).random((60, 4), dtype=np.float32)
    cloud.tofile(place / "cloud.bin")
    return by_cli("predict", checkpoint(place, config), place / "cloud.bin", "--device", "cpu")


def export(place: Path, config: Any) -> str | None:
    return by_cli("export", checkpoint(place, config), place / "exported.safetensors")


def cloud(place: Path) -> Path:
    np.save(place / "room.npy", np.random.default_rng(0).random((80, 3)))
    return place / "room.npy"


def register(place: Path, config: Any) -> str | None:
    path, model = cloud(place), registration_checkpoint(place, config)
    return by_cli("register", path, path, "--model", model, "--device", "cpu")


def describe(place: Path, config: Any) -> str | None:
    path, model = cloud(place), registration_checkpoint(place, config)
    return by_cli("registration", "describe", path, "--model", model, "--device", "cpu")


def evaluation(place: Path, config: Any) -> str | None:
    try:
        words = [f"ckpt_path={checkpoint(place, config)}", "trainer=cpu", "callbacks=plain"]
        words = with_checkpoint_options(words, CONF)
        evaluate(of_program("eval", place / "evaluation", *words))
    except (UserError, FileNotFoundError) as error:
        return str(error)
    return None


def resumed(place: Path, config: Any) -> str | None:
    folder = place / "resumed"
    folder.mkdir(exist_ok=True)
    (folder / run_folder.CONFIG).write_text(yaml.safe_dump(config))
    try:
        train(of_program("train", place / "made", f"resume={folder}"))
    except (UserError, FileNotFoundError) as error:
        return str(error)
    return None


def test_against_a_good_configuration_the_readers_do_their_work(place: Path) -> None:
    good = content(place)["pcnn_config"]
    for reader in (predict, export, evaluation):
        assert reader(place, good) is None, reader
    assert describe(place, REGISTRATION) is None
    cut = register(place, REGISTRATION)  # no transform, of random weights: no refusal
    assert cut is None or "refused" not in cut


#: The keys that a reader reads; None: all.
READ: Mapping[Reader, tuple[str, ...] | None] = {
    predict: (*NETWORK, *NEVER),
    register: (*NETWORK, *NEVER),
    describe: (*NETWORK, *NEVER),
    export: NEVER,
    evaluation: ("model", "task", *NEVER),
    resumed: None,
}
#: Left alone by readers that do not look there.
ELSEWHERE = ("callback", "data_argument")
#: Given to every reader. They share what refuses a node, so `resumed` alone takes all.
FOR_ALL = (
    *("nested_shell", "nested_list", "nested_import", "nested_pickle", "network_function"),
    *("network_import", "network_through_a_module", "network_partial", "backbone", "placement"),
    *("environment_in_a_text", "decoded", "hydra_launcher", "defaults", "allowed_by_itself"),
    *("task", "loss", "loss_argument", "optimizer_argument", "bomb", "missing", "resolver"),
)


@pytest.mark.parametrize("reader", READ)
def test_hostile_configurations(reader: Reader, place: Path) -> None:
    good = REGISTRATION if reader in (register, describe) else content(place)["pcnn_config"]
    if reader is resumed:  # YAML is slow: without what no case changes
        task = {"segmentation": good["dataset"]["tasks"]["segmentation"]}
        dataset = {**good["dataset"], "tasks": task}
        good = {**good, "dataset": dataset, "data": {"source": "real"}}
    read = READ[reader]
    for name in CASES if read is None else (*FOR_ALL, *ELSEWHERE):
        root = CASES[name][0].partition(".")[0]
        looked_at = read is None or root in read or name in SHAPES
        if not looked_at and name not in ELSEWHERE:
            continue
        said = reader(place, with_case(good, name, place / "marker"))
        assert payload.RAN == [], name
        if looked_at:
            assert said is not None, f"{name} was taken"
        if said is not None and reader in (evaluation, resumed):
            assert len(said.splitlines()) <= 3, said
            assert len(said) < 1000, said
            assert SECRET not in said


def test_pickles_that_run_something_are_refused(place: Path) -> None:
    for reader in (predict, export, register, describe, evaluation):
        said = reader(place, {"model": payload.Reduced()})
        assert said is not None
        assert "not a whole checkpoint" in said, said
    (place / "pairs.pkl").write_bytes(pickle.dumps([payload.Reduced()]))
    with pytest.raises(ValueError, match="asks for"):
        read_pickle(place / "pairs.pkl")
    torch.save(payload.Reduced(), place / "cloud.pth")
    with pytest.raises(ValueError, match="more than"):
        read_fragment(place / "cloud.pth")


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
def test_run_folders_hold_plain_yaml(place: Path, text: str) -> None:
    folder = place / "yaml"
    folder.mkdir(exist_ok=True)
    (folder / run_folder.CONFIG).write_text(text)
    with pytest.raises(UserError):
        run_folder.load_config(folder)
    (place / "classes.yaml").write_text(text.replace("model", "names"))
    with pytest.raises((ValueError, RecursionError)):
        read_classes(place / "classes.yaml")


def test_a_name_in_a_checkpoint_becomes_no_other_word(place: Path) -> None:
    conf = place / "conf"
    (conf / "model").mkdir(parents=True)
    (place / "evil.yaml").write_text("_target_: os.system")
    for name in ("../../evil", f"{place / 'evil'}", "evil hydra.run.dir=x", "a,b"):
        config = {key: {"name": name} for key in ("model", "dataset", "task", "geometry", "engine")}
        config["data"] = {"source": "real", "in_channels": 4}
        words = with_checkpoint_options([f"ckpt_path={checkpoint(place, config)}"], conf)
        assert words == [f"ckpt_path={place / 'hostile.ckpt'}"]


def test_tuned_files_and_run_ids_name_nothing_else(place: Path) -> None:
    path = place / "tuned.json"
    row = {"dataflow": {"name": "os.system", "fields": {"command": "touch marker"}}}
    path.write_text(json.dumps({"format": 1, "rows": [row]}))
    with pytest.warns(RuntimeWarning, match="not used"):
        assert len(tuning_file.read(path)) == 0
    (place / "run_id.txt").write_text("../../elsewhere\n")
    with pytest.raises(ValueError, match="no run id"):
        stored_run_id(place)


def test_what_a_user_composes_is_checked_too(place: Path) -> None:
    for words in (
        [f"+model.more={{_target_:{HERE}.fire}}"],
        [f"model.width={{_target_:{HERE}.fire}}"],
        [f"+callbacks.more={{_target_:{HERE}.Hook}}"],
        [f"task.loss={{_target_:{HERE}.Loss}}"],
    ):
        with pytest.raises(ConfigError) as refused:
            composed_by_cli(words, CONF)
        assert len(str(refused.value).splitlines()) <= 3
        assert f"_target_={HERE}" in str(refused.value)
    for part in ("task.loss._target_", f"{HERE}.Loss", "Module", "allow_targets"):
        assert part in str(refused.value)


def test_allowed_packages_come_from_the_command_line_alone() -> None:
    cfg = composed(f"allow_targets=[{HERE}]")
    check_allowed(cfg, [f"allow_targets=[{HERE}]"])
    with pytest.raises(ConfigError, match="from a file"):
        check_allowed(cfg, ["experiment=evil"])
    for name in ("os.", "", "a b", "..x"):
        cfg.allow_targets = [name]
        with pytest.raises(ConfigError, match="not valid"):
            check_allowed(cfg, ["allow_targets=[]"])
    assert "allow_targets" not in run_folder.stored(composed(f"allow_targets=[{HERE}]"))


def test_classes_of_the_users_own() -> None:
    node = {
        "_target_": f"{HERE}.Plain",
        "out_channels": 3,
        "loss": {"_target_": "torch.nn.Identity"},
    }
    with pytest.raises(ConfigError, match="refused"):
        verified(node, "model")
    with pytest.raises(ConfigError, match=r"loss._target_=torch.nn.Identity is refused"):
        verified(node, "model", [HERE])
    node["loss"] = {"_target_": f"{HERE}.Plain", "out_channels": 2}
    made = construct(verified(node, "model", ["tests"]))
    assert (made.out_channels, made.loss.out_channels) == (3, 2)
    construct(verified({"_target_": f"{HERE}.Loss"}, "task.loss", [HERE]))
    assert payload.RAN == ["Loss"]  # so a payload that is let in does say that it ran
    payload.RAN.clear()
    for other in ("L.Trainer", "CSVLogger", "RAN", "torch.load", "absent"):
        with pytest.raises(ConfigError):
            looked_up(f"{HERE}.{other}", "model", allow=[HERE])
    with pytest.raises(ConfigError, match="refused"):  # a base class for every place
        looked_up(f"{HERE}.Plain", "callbacks.mine", allow=[HERE])


def test_a_path_elsewhere_is_repeated_on_the_command_line(place: Path) -> None:
    config = run_folder.stored(composed(*TINY))
    config["callbacks"]["checkpoint"]["folder"] = str(place / "elsewhere")
    config["data"] = {"source": "real"}  # as every run records
    folder = place / "moved"
    folder.mkdir()
    (folder / run_folder.CONFIG).write_text(yaml.safe_dump(config))
    words = [f"resume={folder}"]
    with pytest.raises(ConfigError, match=r"callbacks\.checkpoint\.folder"):
        continuation(composed(*words), words)
    words.append(f"callbacks.checkpoint.folder={place / 'elsewhere'}")
    assert continuation(composed(*words), words).folder == folder


def test_earlier_names_lead_to_classes_that_exist() -> None:
    for old, new in RENAMED.items():
        assert any(leads_to(old, place) == new for place in PLACES.values())
    for old, (module, sets) in SPLIT_UP.items():
        assert looked_up(module, "x", PLACES["dataset"]).name == module != old
        assert looked_up(sets, "x", PLACES["sets"]).name == sets
    for place in PLACES.values():
        assert looked_up(place.example, "x", place).name == place.example
        for name in place.functions:
            assert callable(looked_up(name, "x", place).call)


def leads_to(name: str, place: Place) -> str | None:
    try:
        return looked_up(name, "x", place).name
    except ConfigError:
        return None

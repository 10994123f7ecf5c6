"""No value of any key ends in a traceback: a message of at most three lines names the key."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from pcnn.errors import UserError
from pcnn.experiment import build, nodes
from pcnn.experiment.arguments import check_arguments
from pcnn.experiment.check import checked
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.run import Run, execute
from pcnn.experiment.schema import Config, EvalConfig
from tests.experiment.sweep import COMMANDS, CONF, VALUES, Node, arguments, composed, with_value
from tests.experiment.tiny_kitti import write_tiny_kitti

#: Constructed from a resolved node alone, without data, network or run folder.
ALONE = ("trainer", "tta", "dataset", "task.optimizer", "task.scheduler", "task.loss")
#: Groups whose values a data module takes from elsewhere in the configuration.
ELSEWHERE = {"augment": "augment", "geometry": "geometry", "simulate": "dataset.simulate"}
TINY = (
    *("model.width=0.0625", "dataset.train_sequences=[0]", "dataset.voxel_size=1.0"),
    *("dataset.num_workers=0", "dataset.cache=false", "trainer=cpu", "trainer.max_steps=2"),
    *("trainer.val_check_interval=1", "trainer.log_every_n_steps=1"),
    "callbacks.pictures=null",  # they take longest
)
#: Options for which two steps of training take minutes or start processes.
LARGE = ("model.width", "trainer.devices", "trainer.num_nodes")


def short(key: str, error: UserError) -> None:
    """A short message that names the key, or the group it belongs to."""
    said = str(error)
    assert 1 <= len(said.splitlines()) <= 3, said
    assert key.rpartition(".")[2] in said, f"{key}: {said}"


def made(node: Node, key: str) -> None:
    """Construct what a node names, or the part of it that the key belongs to."""
    part, _, _ = key.partition(".")
    where = f"{node.where}.{part}" if node.where == "task" else node.where
    if where not in ALONE:
        return
    content = node.content[part] if node.where == "task" else node.content
    if where == "task.optimizer":
        with nodes.refused_values(where, content):
            build.make(content, where, params=[torch.nn.Parameter(torch.zeros(1))])
    elif where == "task.scheduler":
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        build.make(content, where, optimizer=optimizer, total_steps=2)
    elif where == "trainer":
        build.make(content, where, logger=False, enable_checkpointing=False)
    else:
        build.make(content, where)


def test_every_argument_of_every_configuration() -> None:
    swept = 0
    for command, node, key in arguments():
        for value in VALUES:
            changed = node._replace(content=with_value(node.content, key, value))
            swept += 1
            try:
                check_arguments(changed.content, changed.content, node.where, node.given)
                if "_target_" in str(inner_of(changed, key)):
                    made(changed, key)
            except ConfigError as error:
                short(f"{node.where}.{key}", error)
            except Exception as error:
                raise AssertionError(f"{command}: {node.where}.{key}={value!r}") from error
    assert swept > 4000


def inner_of(node: Node, key: str) -> dict[str, Any]:
    part: dict[str, Any] = node.content.get(key.partition(".")[0], {})
    return part if node.where == "task" else node.content


@pytest.mark.parametrize("program", ["train", "eval"])
def test_every_key_outside_the_classes(program: str) -> None:
    cfg = composed(name=program)
    OmegaConf.set_struct(cfg, False)
    cfg.merge_with({"ckpt_path": "best.ckpt", "logger": {}})
    cfg.callbacks = {"checkpoint": cfg.callbacks.checkpoint} if program == "train" else {}
    described = ("model.name", "model.tasks", "model.geometries", "task.name", "task.metric")
    own = [str(key) for key in cfg if key not in ("hydra", "data")]
    every = (*own, *described, "dataset.tasks", "callbacks.checkpoint", "task.channels")
    schema = EvalConfig if program == "eval" else Config
    for key in ("ckpt_path", "predictions", "submission") if program == "eval" else every:
        for value in (-1, 10**18, math.nan, None, "text", [1], {"key": 1}):
            changed = cfg.copy()
            OmegaConf.set_struct(changed, False)
            OmegaConf.update(changed, key, value, merge=False)
            try:
                checked(changed, schema)
            except ConfigError as error:
                said = str(error)
                assert 1 <= len(said.splitlines()) <= 3, said
                assert key.partition(".")[0] in said, f"{key}={value}: {said}"
            except Exception as error:
                raise AssertionError(f"{key}={value!r}") from error


@pytest.mark.parametrize("value", [-1, 2**32, 10**18, math.nan])
def test_seeds_out_of_range_name_what_is_possible(value: Any) -> None:
    cfg = composed()
    cfg.seed = value
    with pytest.raises(ConfigError, match=r"^seed") as refused:
        checked(cfg, Config)
    assert "whole number" in str(refused.value)


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """End what hangs."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_steps_of_training_with_every_value_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pcnn.experiment.run.tell_other_ranks", lambda folder: None)
    root = write_tiny_kitti(tmp_path / "kitti", {0: 3, 8: 2}, points=150)
    cfg = composed(*TINY, f"dataset.root={root}", "logger=[csv]")
    trained = 0
    for number, (command, node, key) in enumerate(arguments()):
        if command != "segmentation" or node.where in ("logger.tensorboard", "logger.wandb"):
            continue
        if cfg.callbacks.get(node.where.partition(".")[2], "absent") is None:
            continue
        path = in_configuration(node.where, key)
        if path in LARGE:
            continue
        for value in VALUES:
            changed = cfg.copy()
            OmegaConf.set_struct(changed, False)
            OmegaConf.update(changed, path, value, merge=False)
            folder = tmp_path / f"run{number}" / str(trained)
            folder.mkdir(parents=True)
            try:
                with limited(60):
                    execute(Run(checked(changed), folder))
                steps = json.loads((folder / "metrics.json").read_text())["steps"]
                assert steps > 0, f"{path}={value!r} trained nothing"
                trained += 1
            except UserError as error:
                short(path, error)
            except Exception as error:
                raise AssertionError(f"{path}={value!r}") from error
    assert trained > 100


def in_configuration(where: str, key: str) -> str:
    """The key as a user types it."""
    if where != "dataset":
        return f"{where}.{key}"
    group, _, rest = key.removeprefix("sets.").partition(".")
    return f"{ELSEWHERE[group]}.{rest}" if rest else f"dataset.tasks.segmentation.{key}"


def test_the_commands_choose_every_class() -> None:
    chosen = {"_target_"}
    for overrides in COMMANDS.values():
        text = OmegaConf.to_yaml(composed(*overrides))
        chosen |= {line.split()[-1] for line in text.splitlines() if "_target_:" in line}
    for path in CONF.rglob("*.yaml"):
        for line in path.read_text().splitlines():
            if "_target_:" in line:
                assert line.split("_target_:")[1].split("#")[0].strip() in chosen, path

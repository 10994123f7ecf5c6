"""Refuse, before anything is built, what cannot be run; say what can."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from hydra.utils import get_object
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigKeyError,
    InterpolationKeyError,
    OmegaConfBaseException,
    ValidationError,
)
from torch import nn

from pcnn.experiment.arguments import check_arguments, named, signature
from pcnn.experiment.errors import ConfigError, UnservedTaskError, listed, nearest
from pcnn.experiment.schema import Config
from pcnn.experiment.task_parts import evaluation_part, training_part
from pcnn.ops.engine import check_geometry, resolve

# keys of a model that describe it; the others are arguments of its constructor
ABOUT_MODEL = ("name", "tasks", "geometries")
# keys of a data set that other groups read: data modules need not take them
ABOUT_DATASET = ("name", "tasks", "point_thin")
# keys that a task must ask for, by the argument's name
OF_SOME_TASKS = {"tta": "views", "compile": "compiled"}
# what the program passes besides the configuration
GIVEN = {
    "model": frozenset({"in_channels", "out_channels", "engine", "task"}),
    "task": frozenset(
        {
            "net",
            "class_names",
            "ignore_index",
            "voxel_size",
            "benchmark",
            "compiled",
            "views",
        }
    ),
    "trainer": frozenset({"callbacks", "logger", "default_root_dir", "plugins"}),
}


def checked(cfg: DictConfig, schema: type[Config] = Config) -> DictConfig:
    """The configuration, typed; every argument checked against what it is for.

    Raises:
        ConfigError: a key is unknown, missing or of the wrong type, or the chosen model, data set,
            task, geometry and engine do not go together.
    """
    typed = merged(cfg, schema)
    check_combination(typed)
    required = list(missing(OmegaConf.to_container(typed, resolve=False)))
    if required:
        raise ConfigError(f"these keys need a value: {listed(required)}")
    task = typed.task.name
    check_dataset_keys(typed.dataset)
    for group in ("model", "task", "trainer"):
        check_node(typed, typed[group], group, GIVEN[group])
    check_node(typed, typed.dataset.tasks[task], f"dataset.tasks.{task}", frozenset())
    if typed.tta:
        check_node(typed, typed.tta, "tta", frozenset())
    for group in ("callbacks", "logger"):
        for name, node in typed[group].items():
            check_node(typed, node, f"{group}.{name}", frozenset())
    return typed


def missing(node: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of the keys that are still ???."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from missing(value, f"{prefix}.{name}" if prefix else str(name))
    elif node == MISSING:
        yield prefix


def merged(cfg: DictConfig, schema: type[Config]) -> DictConfig:
    """`cfg` on top of the schema, so that wrong types and unknown keys fail."""
    try:
        typed = OmegaConf.merge(OmegaConf.structured(schema), cfg)
    except ConfigKeyError as error:
        names = list(OmegaConf.structured(schema))
        raise ConfigError(
            f"{error.full_key} does not exist.{nearest(str(error.full_key), map(str, names))}\n"
            f"keys and groups: {listed(map(str, names))}"
        ) from error
    except (ValidationError, OmegaConfBaseException) as error:
        wanted = get_type_hints(schema).get(str(error.full_key), Any)
        raise ConfigError(
            f"{error.full_key}: {str(error).splitlines()[0]}\npossible: {named(wanted)}"
        ) from error
    assert isinstance(typed, DictConfig)
    return typed


def check_combination(cfg: DictConfig) -> None:
    """Whether the chosen options go together, and the training has an end."""
    model, dataset, task = cfg.model.name, cfg.dataset.name, cfg.task.name
    if task not in cfg.model.tasks:
        others = listed(cfg.model.tasks)
        raise UnservedTaskError(
            f"model={model} does not serve task={task}.\n"
            + (f"possible: model={model} task={others}" if others else "It serves no task yet."),
            task,
            "model",
        )
    if task not in cfg.dataset.tasks:
        raise UnservedTaskError(
            f"dataset={dataset} does not serve task={task}.\n"
            f"dataset={dataset} serves: {listed(cfg.dataset.tasks)}",
            task,
            "dataset",
        )
    for key, argument in OF_SOME_TASKS.items():
        if cfg[key] and argument not in signature(get_object(cfg.task._target_))[0]:
            raise ConfigError(f"task={task} has no use for {key}.\npossible: without {key}")
    geometry = cfg.geometry.name
    if geometry not in cfg.model.geometries:
        raise ConfigError(
            f"model={model} does not serve geometry={geometry}.\n"
            f"model={model} serves: {listed(cfg.model.geometries)}"
        )
    if geometry != "voxel" and "geometry" not in cfg.dataset.tasks[task]:
        raise ConfigError(
            f"dataset={dataset} task={task} does not serve geometry={geometry}.\n"
            f"dataset={dataset} task={task} serves: voxel"
        )
    try:
        check_geometry(resolve(cfg.engine.name, cfg.engine.deterministic), geometry)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if cfg.trainer.get("max_steps") == -1 and cfg.trainer.get("max_epochs") in (None, -1):
        raise ConfigError(
            "trainer.max_steps=-1 leaves the length of the training open, and the schedule with it."
            "\npossible: trainer.max_epochs=EPOCHS with it, or trainer.max_steps=STEPS"
        )


def check_dataset_keys(dataset: DictConfig) -> None:
    """Every key of a data set must reach its data module: one that does not is a mistake."""
    written = OmegaConf.to_yaml(dataset.tasks, resolve=False)  # a key may serve another task
    if "${dataset." not in written:
        return  # the configuration of an earlier run is resolved, and was checked when it began
    used = {*ABOUT_DATASET, *re.findall(r"\$\{dataset\.(\w+)", written)}
    for key in map(str, dataset):
        if key not in used:
            raise ConfigError(
                f"dataset={dataset.name} has no key {key}.{nearest(key, used)}\n"
                f"keys of dataset: {listed(sorted(used))}"
            )


def check_node(cfg: DictConfig, node: DictConfig, where: str, given: frozenset[str]) -> None:
    """Check one `_target_` node of the configuration."""
    try:
        resolved = OmegaConf.to_container(node, resolve=True)
    except InterpolationKeyError as error:
        raise ConfigError(f"{error.full_key}: {str(error).splitlines()[0]}") from error
    written = OmegaConf.to_container(node, resolve=False)
    assert isinstance(resolved, dict)
    assert isinstance(written, dict)
    if where == "model":
        resolved = without(resolved, ABOUT_MODEL)
    elif where == "task":
        evaluation = evaluation_part(without(resolved, ()))
        if evaluation is not None:
            check_arguments(evaluation, without(written, ()), where, frozenset())
        resolved = training_part(without(resolved, ()))
    check_arguments(without(resolved, ()), without(written, ()), where, given)


def is_network(model: Mapping[str, Any]) -> bool:
    """Whether a model has weights to train and to load; a hand-made descriptor has none."""
    target = get_object(model["_target_"])
    return not (inspect.isclass(target) and not issubclass(target, nn.Module))


def without(node: dict[Any, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """`node` without some keys."""
    return {str(key): value for key, value in node.items() if key not in names}

"""Refuse, before anything is built, what cannot be run; say what can."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_origin, get_type_hints

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigKeyError,
    OmegaConfBaseException,
)
from torch import nn

from pcnn.errors import first_line
from pcnn.experiment.arguments import check_arguments, invalid, signature
from pcnn.experiment.described_keys import ABOUT, ABOUT_MODEL, ABOUT_TRAINER, without
from pcnn.experiment.engine_choice import engine_of, fill_layers
from pcnn.experiment.errors import ConfigError, UnservedTaskError, listed, nearest
from pcnn.experiment.places import SPLIT_UP
from pcnn.experiment.schema import Config, evaluation_part, training_part
from pcnn.experiment.targets import allowed_packages, looked_up, verified
from pcnn.hints import accepts, hints_of, shown
from pcnn.ops.engine import check_geometry
from pcnn.tasks.network_task import can_run_as_graph

# keys of every group that describes itself by them
NEEDED = ("name", "tasks", "geometries")
# keys that a task must ask for, by the argument's name
OF_SOME_TASKS = {"tta": "views"}
# strategies whose gradients no hooks have to see
ONE_PROCESS_A_DEVICE = (
    *("auto", "ddp", "ddp_spawn", "ddp_fork"),
    "lightning.pytorch.strategies.DDPStrategy",
)
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
            "graph",
            "views",
        }
    ),
    "callbacks": frozenset({"run_folder", "config", "source", "class_names", "colors"}),
    "trainer": frozenset({"callbacks", "logger", "default_root_dir", "plugins"}),
}


def checked(cfg: DictConfig, schema: type[Config] = Config) -> DictConfig:
    """The configuration, typed; every argument checked against what it is for.

    Raises:
        ConfigError: a key is unknown, missing or of the wrong type, or the chosen model, data set,
            task, geometry and engine do not go together.
    """
    typed = merged(cfg, schema)
    check_described(typed, schema)
    fill_arguments(typed)
    check_combination(typed)
    fill_layers(typed)
    required = list(missing(OmegaConf.to_container(typed, resolve=False)))
    if required:
        raise ConfigError(f"these keys need a value: {listed(required)}")
    task = typed.task.name
    if not typed.data:  # an earlier run was checked when it began
        check_dataset_keys(typed.dataset)
    for group in ("model", "task", "trainer"):
        check_node(typed, typed[group], group, GIVEN[group])
    check_node(typed, typed.dataset.tasks[task], f"dataset.tasks.{task}", frozenset())
    if "_target_" in typed.geometry:  # data modules take a copy of it
        verified(OmegaConf.to_container(typed.geometry), "geometry", allowed_packages(typed))
    if typed.tta:
        check_node(typed, typed.tta, "tta", frozenset())
    for group in ("callbacks", "logger"):
        for name, node in typed[group].items():
            if node is not None:  # null leaves it out
                check_node(typed, node, f"{group}.{name}", GIVEN["callbacks"])
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
    typed: DictConfig = OmegaConf.structured(schema)
    try:
        typed.merge_with(cfg)
    except ConfigKeyError as error:
        names = list(OmegaConf.structured(schema))
        raise ConfigError(
            f"{error.full_key} does not exist.{nearest(str(error.full_key), map(str, names))}\n"
            f"keys and groups: {listed(map(str, names))}"
        ) from error
    except (OmegaConfBaseException, TypeError) as error:
        key = unmergeable(cfg, schema)
        group, _, name = str(getattr(error, "full_key", "")).partition(".")
        hints = get_type_hints(schema)
        if name and group == key and name in get_type_hints(hints[key]):  # a key of a typed group
            hints, key = {f"{key}.{name}": get_type_hints(hints[key])[name]}, f"{key}.{name}"
        value = OmegaConf.select(cfg, key)
        raise invalid(key, value, hints[key]) from error
    return typed


def unmergeable(cfg: DictConfig, schema: type[Config]) -> str:
    """The first key whose value is not of the type that the schema wants."""
    typed = OmegaConf.structured(schema)
    for key in map(str, cfg):
        try:
            typed.merge_with(OmegaConf.masked_copy(cfg, key))
        except (OmegaConfBaseException, TypeError):
            return key
    raise AssertionError("every key by itself is of the type that the schema wants")


def check_described(cfg: DictConfig, schema: type[Config]) -> None:
    """Check the keys that describe the run and its groups; the others go to constructors."""
    written = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(written, dict)
    # OmegaConf has checked the types, and knows no ranges
    ranged = {
        name: hint for name, hint in hints_of(schema).items() if get_origin(hint) is Annotated
    }
    check_plain(cfg, written, "", ranged)
    for group, hints in ABOUT.items():
        if written[group] == MISSING:
            raise ConfigError(f"{group} needs a value.\npossible: {group}=NAME, see --help")
        for name in [name for name in NEEDED if name in hints]:
            if name not in written[group]:
                raise ConfigError(f"{group}.{name} is missing.\npossible: {group}=NAME, see --help")
        check_plain(cfg, written[group], f"{group}.", hints)


def check_plain(
    cfg: DictConfig, written: Mapping[Any, Any], prefix: str, hints: Mapping[str, Any]
) -> None:
    """Check plain keys against types with ranges; `written` holds them, not resolved."""
    for name in [name for name in hints if written.get(name, MISSING) != MISSING]:
        key, value = f"{prefix}{name}", written[name]
        if isinstance(value, str) and "${" in value:
            try:
                value = OmegaConf.select(cfg, key)
            except OmegaConfBaseException as error:
                raise ConfigError(f"{key}={value}: {first_line(error)}") from error
        if not accepts(value, hints[name]) or (isinstance(value, Mapping) and hints[name] is str):
            raise invalid(key, value, hints[name])


def check_combination(cfg: DictConfig) -> None:
    """Check that the chosen options go together, and that the training has an end."""
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
        if not cfg[key]:
            continue
        target = looked_up(cfg.task.get("_target_"), "task", allow=allowed_packages(cfg))
        if argument not in signature(target.call)[0]:
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
        check_geometry(engine_of(cfg), geometry)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    reason = no_graph(cfg) if cfg.trainer.get("graph") is True else None
    if reason is not None:
        raise ConfigError(f"trainer.graph=true: {reason}.\npossible: trainer.graph=auto")
    if cfg.trainer.get("max_steps") == -1 and cfg.trainer.get("max_epochs") in (None, -1):
        raise ConfigError(
            "trainer.max_steps=-1 leaves the length of the training open, and the schedule with it."
            "\npossible: trainer.max_epochs=EPOCHS with it, or trainer.max_steps=STEPS"
        )


def no_graph(cfg: DictConfig) -> str | None:
    """Why no CUDA graph holds the steps of a training, on whatever machine; None: one does."""
    target = looked_up(cfg.task.get("_target_"), "task", allow=allowed_packages(cfg))
    if not can_run_as_graph(target.call):
        return f"task={cfg.task.name} does not say what a step learns (NetworkTask.compute_loss)"
    if engine_of(cfg).dataflow is not None:
        return f"engine={cfg.engine.name} takes numbers of every map to the host"
    if cfg.get("recompute"):
        return "recompute runs layers again in backward"
    if cfg.model.get("overlap_head"):
        return "model.overlap_head=true is taught outside of the network's graph"
    if cfg.trainer.get("shard_optimizer"):
        return "trainer.shard_optimizer=true exchanges weights in a step"
    if cfg.trainer.get("sync_batchnorm") and str(cfg.trainer.get("devices")) != "1":
        return "trainer.sync_batchnorm=true counts spare rows"
    strategy = cfg.trainer.get("strategy")
    name = strategy.get("_target_") if isinstance(strategy, DictConfig) else strategy
    if str(name) not in ONE_PROCESS_A_DEVICE:
        return f"trainer.strategy={name} takes gradients from hooks"
    return None


def of_this_package(cfg: DictConfig) -> bool:
    """True where network, task and loss are of this package, whose steps are known to be held."""
    parts = (cfg.model, cfg.task, cfg.task.get("loss") or {})
    return all(str(part.get("_target_")).startswith("pcnn.") for part in parts)


def check_dataset_keys(dataset: DictConfig) -> None:
    """Every key of a data set must reach its data module: one that does not is a mistake."""
    written = OmegaConf.to_yaml(dataset.tasks, resolve=False)  # a key may serve another task
    used = {*ABOUT_DATASET, *re.findall(r"\$\{dataset\.(\w+)", written)}
    for key in map(str, dataset):
        if key not in used:
            raise ConfigError(
                f"dataset={dataset.name} has no key {key}.{nearest(key, used)}\n"
                f"keys of dataset: {listed(sorted(used))}"
            )


def check_node(cfg: DictConfig, node: Any, where: str, given: frozenset[str]) -> None:
    """Check one `_target_` node of the configuration."""
    if not isinstance(node, DictConfig):
        raise ConfigError(f"{where}={shown(node)} is not valid.\npossible: keys with a _target_")
    try:
        resolved = OmegaConf.to_container(node, resolve=True)
    except OmegaConfBaseException as error:  # an interpolation that leads nowhere
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from error
    written = OmegaConf.to_container(node, resolve=False)
    assert isinstance(resolved, dict)
    assert isinstance(written, dict)
    if where == "model":
        resolved = without(resolved, ABOUT_MODEL)
    elif where == "trainer":
        resolved = without(resolved, ABOUT_TRAINER)
    elif where == "task":
        evaluation = evaluation_part(without(resolved, ()))
        if evaluation is not None:
            check_arguments(evaluation, without(written, ()), where, frozenset())
        resolved = training_part(without(resolved, ()))
    node = verified(without(resolved, ()), where, allowed_packages(cfg))
    check_arguments(node, without(written, ()), where, given)


def is_network(model: Mapping[str, Any], allow: Sequence[str] = ()) -> bool:
    """True for a model with weights to train and to load; a hand-made descriptor has none."""
    target = looked_up(model.get("_target_"), "model", allow=allow).call
    return not (inspect.isclass(target) and not issubclass(target, nn.Module))


#: Keys of a data set that are arguments of no data module.
ABOUT_DATASET = ("name", "tasks", "point_thin")
#: Arguments that come from a key at the top of the configuration.
OF_THE_RUN = ("augment", "geometry", "seed")


def fill_arguments(cfg: DictConfig) -> None:
    """Write the arguments of the data modules of a configuration out, in place.

    Under ``dataset.tasks.TASK`` stand a data module, its ``sets``, and arguments that are called
    otherwise than the key they come from. Every other parameter takes the key of its name:
    ``${dataset.NAME}``, or ``${NAME}`` for `OF_THE_RUN`. Parameters without a key keep their
    defaults. The nodes of earlier runs are complete, and brought up to date.

    Raises:
        ConfigError: a target that may not stand there.
    """
    keys = {str(key) for key in cfg.dataset if key not in ABOUT_DATASET}
    keys = set() if cfg.get("data") else keys  # an earlier run wrote all arguments out
    allow = allowed_packages(cfg)
    written = OmegaConf.to_container(cfg.dataset.tasks, resolve=False)
    assert isinstance(written, dict)
    for task, node in written.items():
        if isinstance(node, str):  # an interpolation of another task's
            node = OmegaConf.to_container(cfg.dataset.tasks[task], resolve=False)
        if isinstance(node, dict):
            written[task] = _filled(_current(node), "dataset.tasks." + str(task), keys, allow)
    cfg.dataset.tasks = written


def _filled(
    node: Mapping[Any, Any], where: str, keys: set[str], allow: Sequence[str]
) -> dict[str, Any]:
    filled = {str(name): value for name, value in node.items()}
    target = looked_up(filled.get("_target_"), where, allow=allow)
    parameters = inspect.signature(target.call).parameters
    for name, parameter in parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        if name in filled:
            if name == "sets" and isinstance(filled[name], Mapping):
                filled[name] = _filled(filled[name], f"{where}.{name}", keys, allow)
        elif name in OF_THE_RUN and keys:
            filled[name] = f"${{{name}}}"
        elif name in keys:
            filled[name] = f"${{dataset.{name}}}"
    return filled


def _current(node: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """A node of an earlier version, whose data module and sets were one class, as it is now."""
    if node.get("_target_") not in SPLIT_UP:
        return node
    module, sets = SPLIT_UP[node["_target_"]]
    names = inspect.signature(looked_up(sets, "dataset.tasks.any.sets").call).parameters
    shared = inspect.signature(looked_up(module, "dataset.tasks.any").call).parameters
    return {
        **{name: value for name, value in node.items() if name in shared},
        "_target_": module,
        "sets": {"_target_": sets, **{name: node[name] for name in names if name in node}},
    }

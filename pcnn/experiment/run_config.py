"""The configuration of a run: keys and their types, and what goes together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pcnn.config import looked_up, make, named_after, parameters_of, refusal
from pcnn.config.make import check
from pcnn.config.values import selected
from pcnn.errors import ConfigError, first_line
from pcnn.experiment.networks import engine_of, fill_layers, placement
from pcnn.ranges import Channels, Factor, Seed

if TYPE_CHECKING:
    import lightning as L

#: Keys beside the groups, with their types.
RUN: Mapping[str, Any] = {
    "seed": Seed,
    "train": bool,
    "test": bool,
    "ckpt_path": str | None,
    "init_from": str | None,
    "freeze": list[str],
    "layer_decay": Factor,
    "resume": str | None,
    "allow_targets": list[str],
    "tags": list[str],
    "words": list[str] | None,  # by which a training was begun
}
#: Groups, with the keys of each that describe it; the others are arguments of its `_target_`.
ABOUT: Mapping[str, Mapping[str, Any]] = {
    "model": {"name": str, "tasks": list[str], "geometries": list[str]},
    "dataset": {"name": str, "task": str, "point_thin": Any},
    "geometry": {"name": str},
    "engine": {"name": str, "deterministic": bool | None, "layers": Any},
    "task": {
        "name": str,
        "metric": str | None,
        "monitor": str | None,
        "monitor_mode": Literal["max", "min", None],
        "channels": Channels | None,
        "unit_length": bool,
        "varied_input": bool,
    },
    "trainer": {"cuda_graphs": Literal["auto"] | bool | None},
}
#: Groups that may be empty; `data` is filled in by a run.
OTHERS = ("callbacks", "logger", "augment", "tta", "data")
_GROUP = dict[str, Any] | None
#: Strategies whose gradients no hooks have to see.
_ONE_PROCESS_A_DEVICE = (
    *("auto", "ddp", "ddp_spawn", "ddp_fork"),
    "lightning.pytorch.strategies.DDPStrategy",
)


def checked(cfg: DictConfig) -> DictConfig:
    """The configuration of a run, every key checked."""
    written = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(written, dict)
    for key in written:
        if key not in RUN and key not in ABOUT and key not in OTHERS:
            raise ConfigError(str(key), "no such key")
    none: dict[str, Any] = {"callbacks": {}, "logger": {}, "data": {}, "augment": None, "tta": None}
    cfg = OmegaConf.create({**none, **written})
    for key in sorted(OmegaConf.missing_keys(cfg)):
        raise ConfigError(key, "needs a value")
    plain = resolved(cfg)
    hints = {**RUN, **dict.fromkeys(ABOUT, dict[str, Any]), **dict.fromkeys(OTHERS, _GROUP)}
    hints |= {f"{group}.{key}": hint for group in ABOUT for key, hint in ABOUT[group].items()}
    for key, hint in hints.items():
        value = selected(plain, key)
        rule = refusal(value, hint)
        if rule is not None:
            raise ConfigError(key, f"{str(value)[:80]} is not valid: {rule}")
    fill_layers(cfg)
    _check_combination(cfg)
    _check_nodes(cfg)
    return cfg


def resolved(cfg: Any) -> dict[str, Any]:
    """A configuration, or a group of one, as plain values."""
    try:
        plain = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(str(getattr(error, "full_key", "")), first_line(error)) from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def allowed(cfg: DictConfig) -> tuple[str, ...]:
    """`allow_targets`: packages of the user's own."""
    return tuple(map(str, cfg.get("allow_targets") or ()))


def without(node: Mapping[str, Any], group: str) -> dict[str, Any]:
    """A group without the keys that describe it."""
    return {key: value for key, value in node.items() if key not in ABOUT[group]}


def _check_combination(cfg: DictConfig) -> None:
    task, geometry = cfg.task.name, cfg.geometry.name
    serves = {
        "model": (task, cfg.model, cfg.model.tasks),
        "dataset": (task, cfg.dataset, [cfg.dataset.task]),
        "geometry": (geometry, cfg.model, cfg.model.geometries),
    }
    for key, (asked, part, possible) in serves.items():
        if asked not in possible:
            raise ConfigError(key, f"{part.name} serves {', '.join(possible)}, not {asked}")
    with named_after("engine"):
        engine_of(cfg).check(geometry)
    parameters = parameters_of(looked_up(cfg.task.get("_target_"), "task", allowed(cfg)))
    if cfg.tta and "views" not in parameters:
        raise ConfigError("tta", f"task={task} has no use for it")
    targets = [OmegaConf.select(cfg, f"{key}._target_") for key in ("task", "task.loss")]
    if all(str(target).startswith("pcnn.") for target in targets):
        loss: Any = looked_up(targets[1], "task.loss", allowed(cfg))
        if ("batch" in parameters_of(loss.forward)) != (task == "registration"):
            raise ConfigError("task.loss", f"{loss.__name__} does not serve {task}")
    reason = no_graph(cfg) if cfg.trainer.get("cuda_graphs") is True else None
    if reason is not None:
        raise ConfigError("trainer.cuda_graphs", f"true is not possible: {reason}")
    if cfg.trainer.get("max_steps") == -1 and cfg.trainer.get("max_epochs") in (None, -1):
        raise ConfigError(
            "trainer.max_steps", "-1 leaves the length of the schedule open: trainer.max_epochs=N"
        )


def no_graph(cfg: DictConfig) -> str | None:
    """Why no CUDA graph holds the steps of a training, on whatever machine; None: one does."""
    strategy = cfg.trainer.get("strategy")
    strategy = strategy.get("_target_") if isinstance(strategy, DictConfig) else strategy
    synchronised = cfg.trainer.get("sync_batchnorm") and str(cfg.trainer.get("devices")) != "1"
    reasons = {
        f"engine={cfg.engine.name} asks the host about every map": engine_of(cfg).dataflow
        is not None,
        "trainer.sync_batchnorm=true waits for other devices": synchronised,
        f"trainer.strategy={strategy} moves parameters": str(strategy) not in _ONE_PROCESS_A_DEVICE,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def of_this_package(cfg: DictConfig) -> bool:
    """True where network, task and loss are of this package, whose steps are known to be held."""
    parts = (cfg.model, cfg.task, cfg.task.get("loss") or {})
    return all(str(part.get("_target_")).startswith("pcnn.") for part in parts)


def is_network(cfg: DictConfig) -> bool:
    """True for a model with weights to train and to load; a hand-made descriptor has none."""
    from torch import nn

    target = looked_up(cfg.model.get("_target_"), "model", allowed(cfg))
    return not isinstance(target, type) or issubclass(target, nn.Module)


def _check_nodes(cfg: DictConfig) -> None:
    allow = allowed(cfg)
    nodes = {
        "model": without(resolved(cfg.model), "model"),
        "task": task_parts(cfg)[0],
        "trainer": without(resolved(cfg.trainer), "trainer"),
    }
    for group in ("callbacks", "logger"):
        nodes |= {f"{group}.{name}": node for name, node in resolved(cfg[group]).items()}
    for where, node in nodes.items():
        if node is not None:  # null leaves it out
            make(node, where, allow, build=False)
    data_module(cfg)
    views(cfg)


def task_parts(cfg: DictConfig) -> tuple[dict[str, Any], Any]:
    """The node of the Lightning module, and the options of an evaluation of registration."""
    node = without(resolved(cfg.task), "task")
    if cfg.task.name != "registration":
        return node, None
    from pcnn.experiment.options import RegistrationOptions  # brings the room of registration

    names = {field.name for field in fields(RegistrationOptions)}
    options = {key: node.pop(key) for key in names & node.keys()}
    check(RegistrationOptions, options, "task")
    with named_after("task", options):
        return node, RegistrationOptions(**options)


def views(cfg: DictConfig) -> Any:
    """Views of test-time augmentation, or None."""
    return make(resolved(cfg.tta), "tta", allowed(cfg)) if cfg.get("tta") else None


def data_module(cfg: DictConfig) -> L.LightningDataModule:
    """The data module of a configuration; nothing is read.

    A data-set file is the node of its data module: keys that the module takes go to the module,
    those that its ``sets`` take go to these, and a key that neither takes is an error. ``augment``,
    ``geometry`` and ``seed`` come from the run.
    """
    import lightning as L

    allow = allowed(cfg)
    node = without(resolved(cfg.dataset), "dataset")
    taken = set(parameters_of(looked_up(node.get("_target_"), "dataset", allow)))
    sets = node.get("sets")
    if isinstance(sets, str):
        own = parameters_of(looked_up(sets, "dataset.sets", allow))
        arguments = {key: value for key, value in node.items() if key in own}
        node["sets"] = make({"_target_": sets, **arguments}, "dataset", allow)
        node = {key: value for key, value in node.items() if key in taken or key not in own}
    for key in ("augment", "geometry", "seed"):
        if key in node:
            raise ConfigError(f"dataset.{key}", f"is a key of the run: {key}")
    for key in ("augment", "geometry"):
        # the default geometry is that of a module that knows none
        if cfg[key] and key not in taken and cfg[key].get("name") != "voxel":
            raise ConfigError(key, f"dataset={cfg.dataset.name} has no use for it")
    ours = {
        "augment": make(resolved(cfg.augment), "augment", allow) if cfg.augment else None,
        "geometry": placement(cfg),
        "seed": cfg.seed,
    }
    node |= {key: value for key, value in ours.items() if key in taken}
    module = make(node, "dataset", allow)
    if not isinstance(module, L.LightningDataModule):
        raise ConfigError("dataset._target_", "a data module of Lightning's is needed")
    return module

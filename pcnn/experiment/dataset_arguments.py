"""Arguments of data modules: filled from the keys of the data set by their names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pcnn.experiment.places import SPLIT_UP
from pcnn.experiment.targets import allowed_packages, looked_up

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

"""Every key of every configuration, and the values that a user may give it by mistake."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

from pcnn.experiment.check import GIVEN, fill_arguments
from pcnn.experiment.described_keys import ABOUT_MODEL, ABOUT_TRAINER, without
from pcnn.experiment.schema import evaluation_part, training_part
from pcnn.experiment.targets import verified

CONF = Path(__file__).parents[2] / "conf"

#: Given to every key; none of it may end in a traceback.
VALUES: tuple[Any, ...] = (
    -1,
    0,
    0.5,
    3,
    10**18,
    1e30,
    math.nan,
    math.inf,
    None,
    "text",
    True,
    [],
    [1],
    ["text", None],
    {"key": 1},
)

#: By a name, overrides that between them choose every file of conf/ that holds numbers.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "segmentation": ("logger=[csv,tensorboard,wandb]",),
    "rooms": ("dataset=s3dis", "augment=rooms_mix3d", "task/optimizer=sgd", "tta=scaleflip10"),
    "pieces": ("dataset=s3dis", "augment=rooms_pieces"),
    "classification": ("model=resnet18", "dataset=s3dis", "task/loss=cross_entropy"),
    "folder": (
        *("dataset=folder", "dataset.root=clouds", "dataset.class_names=[road,wall]"),
        *("geometry=point", "augment=lidar_transfer"),
    ),
    "mix": ("augment=lidar_mix", "task/loss=lovasz_weighted", "tta=rot4"),
    "pairs": ("model=resunet", "geometry=point"),
    "fragments": ("model=minkunet", "task=registration", "dataset=threedmatch"),
    "sources": ("model=resunet", "dataset=anywhere", "geometry=point"),
    "fpfh": ("model=fpfh", "dataset=threedmatch"),
    "circle": ("model=resunet", "task/loss=circle", "task/scheduler=multi_step"),
    "info_nce": ("model=resunet", "task/loss=info_nce", "task/scheduler=poly"),
    "sparse": ("model=sparse_resnet", "task/scheduler=cosine", "task/optimizer=sgd_fcgf"),
    "large": ("model=sparse_resnet_large", "task/scheduler=exponential", "augment=spvnas"),
    "points and voxels": ("model=spvcnn",),
    "attention": ("model=litept",),
    "deep": ("model=spunet",),
    "constant": ("task/scheduler=constant", "trainer=ddp_sim", "debug=overfit", "augment=none"),
}


class Node(NamedTuple):
    """A `_target_` node of a configuration."""

    where: str
    content: dict[str, Any]
    given: frozenset[str]


def composed(*overrides: str, name: str = "train") -> DictConfig:
    """The configuration of a command line."""
    cfg = composed_with_hydra(name, overrides).copy()
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg


def chosen_files(*overrides: str) -> set[str]:
    """The files of conf/ that a command line of train.py chooses, as ``group/option``."""
    choices = OmegaConf.to_container(composed_with_hydra("train", overrides).hydra.runtime.choices)
    assert isinstance(choices, dict)
    return {
        f"{str(group).partition('@')[0]}/{option}"
        for group, chosen in choices.items()
        for option in (chosen if isinstance(chosen, list) else [chosen])
    }


@cache
def composed_with_hydra(name: str, overrides: tuple[str, ...]) -> DictConfig:
    """The same with the group `hydra`; not to be changed."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, list(overrides), return_hydra_config=True)


def nodes(cfg: DictConfig) -> Iterator[Node]:
    """Every node that the check of a configuration looks at, resolved."""
    for node in unverified_nodes(cfg):
        yield node._replace(content=verified(node.content, node.where))


def unverified_nodes(cfg: DictConfig) -> Iterator[Node]:
    """The same, with targets by their names."""
    cfg = cfg.copy()
    fill_arguments(cfg)
    plain: Any = OmegaConf.to_container(cfg, resolve=True)
    task = plain["task"]
    yield Node("model", without(plain["model"], ABOUT_MODEL), GIVEN["model"])
    evaluation = evaluation_part(task)
    if evaluation is not None:
        yield Node("task", evaluation, frozenset())
    yield Node("task", training_part(task), GIVEN["task"])
    yield Node("trainer", without(plain["trainer"], ABOUT_TRAINER), GIVEN["trainer"])
    yield Node("dataset", plain["dataset"]["tasks"][task["name"]], frozenset())
    if plain.get("tta"):
        yield Node("tta", plain["tta"], frozenset())
    for group in ("callbacks", "logger"):
        for name, content in (plain.get(group) or {}).items():
            yield Node(f"{group}.{name}", content, GIVEN["callbacks"])


def keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a node, less Hydra's own."""
    for name, value in node.items():
        if not name.startswith("_"):
            yield f"{prefix}{name}"
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{name}.")


def arguments() -> Iterator[tuple[str, Node, str]]:
    """(command, node, key) of every argument of every class that a configuration names, once."""
    seen = set()
    for command, overrides in COMMANDS.items():
        for node in nodes(composed(*overrides)):
            for key in keys(node.content):
                target = inner(node.content, key).get("_target_", f"{node.where}.{key}")
                name = key.rpartition(".")[2]
                if (target, name) not in seen:
                    seen.add((target, name))
                    yield command, node, key


def inner(node: dict[str, Any], key: str) -> dict[str, Any]:
    """The dictionary that holds a dotted key."""
    for name in key.split(".")[:-1]:
        node = node[name]
    return node


def with_value(node: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a node with one key set."""
    changed = copy.deepcopy(node)
    inner(changed, key)[key.rpartition(".")[2]] = value
    return changed

"""Hostile configurations: by a name, what is set in a good one. M stands for a file to be made."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = "tests.experiment.payload"
FIRE = {"_target_": f"{HERE}.fire"}
SHELL = {"_target_": "os.system", "command": "touch M"}
BOMB: Any = []
for _ in range(40):  # small as a graph, endless as a tree
    BOMB = [BOMB, BOMB]
LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: Any = []
for _ in range(100):
    DEEP = [DEEP]


def of(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A node of the payload's."""
    return {"_target_": f"{HERE}.{name}", **arguments}


#: A dotted key and its value.
CASES: Mapping[str, tuple[str, Any]] = {
    # what runs, in the place of a plain argument of the network
    "nested": ("model.width", FIRE),
    "nested_eval": ("model.width", {"_target_": "builtins.eval", "_args_": ["open('M', 'w')"]}),
    "nested_import": ("model.width", {"_target_": "evil_on_import.anything"}),
    # the network itself
    "network_function": ("model._target_", f"{HERE}.fire"),
    "network_import": ("model._target_", "evil_on_import.anything"),
    "network_through_a_module": ("model._target_", "pcnn.models.minkunet.nn.Module"),
    "network_partial": ("model._partial_", FIRE),
    # the other places, by classes of the right base in the wrong package
    "task": ("task._target_", f"{HERE}.Task"),
    "loss": ("task.loss", of("Loss")),
    "optimizer": ("task.optimizer", of("Optimizer", _partial_=True, lr=0.1)),
    "scheduler": ("task.scheduler", {**FIRE, "_partial_": True}),
    "data_module": ("dataset", of("DataModule", name="kitti", task="segmentation")),
    "placement": ("geometry", of("Voxels", name="voxel")),
    "augmentation": ("augment", of("Changes")),
    "views": ("tta", of("Views", name="x")),
    "trainer": ("trainer._target_", f"{HERE}.Trainer"),
    "strategy": ("trainer.strategy", of("Strategy")),
    "callback": ("callbacks.more", of("Hook")),
    "logger": ("logger.more", of("Logger", save_dir=".")),
    # values that a resolver would turn into something else
    "environment": ("model.name", "${oc.env:SECRET}"),
    "environment_in_a_text": ("tags", ["a", "b${oc.env:SECRET}c"]),
    "resolver": ("model.width", "${fire:1}"),
    "missing": ("model.width", "???"),
    # keys that are not a file's
    "defaults": ("defaults", ["/evil", {"override /model": "evil"}]),
    "unknown_key": ("predictions", "M"),
    # places that are not a file's
    "sets_of_another_package": ("dataset.sets", "os.system"),
    "sets_that_run": ("dataset.sets", FIRE),
    # shapes
    "endless": ("model.width", LOOP),
    "bomb": ("model.width", BOMB),
    "deep": ("model.width", DEEP),
    "value_that_is_no_plain_one": ("model.width", {1, 2}),
}


def with_case(good: Mapping[str, Any], name: str, marker: Path) -> dict[str, Any]:
    """A copy of a good configuration with a hostile entry."""
    key, value = CASES[name]
    changed = copy.deepcopy(dict(good))
    *parents, last = key.split(".") if not key.startswith("hydra/") else [key]
    node = changed
    for parent in parents:
        if not isinstance(node.get(parent), dict):
            node[parent] = {}
        node = node[parent]
    endless = any(value is one for one in (LOOP, BOMB, DEEP))
    node[last] = value if endless else placed(value, marker)
    return changed


def placed(value: Any, marker: Path) -> Any:
    """The value with the marker's path in it."""
    if isinstance(value, dict):
        return {key: placed(one, marker) for key, one in value.items()}
    if isinstance(value, list):
        return [placed(one, marker) for one in value]
    if not isinstance(value, str):
        return value
    if value == "M":
        return str(marker)
    return value.replace("'M'", f"'{marker}'").replace("touch M", f"touch {marker}")

"""Keys that describe a group of the configuration; its others are arguments of its `_target_`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pcnn.ranges import Channels

#: Types of the keys that describe a group.
ABOUT: Mapping[str, Mapping[str, Any]] = {
    "model": {"name": str, "tasks": Sequence[str], "geometries": Sequence[str]},
    "dataset": {"name": str, "tasks": Mapping[str, Any]},
    "geometry": {"name": str},
    "engine": {"name": str, "deterministic": bool, "layers": str | Mapping[str, Any] | None},
    "trainer": {
        "graph": Literal["auto"] | bool,
        "shard_optimizer": bool,
    },
    "task": {
        "name": str,
        "metric": str | None,
        "channels": Channels,
        "unit_length": bool,
        "varied_input": bool,
    },
}

#: Keys of a model that describe it; the others are arguments of its constructor.
ABOUT_MODEL = tuple(ABOUT["model"])
#: Keys of the trainer that are no arguments of Lightning's.
ABOUT_TRAINER = tuple(ABOUT["trainer"])
#: Keys that describe a task; they are arguments of nothing.
ABOUT_TASK = tuple(ABOUT["task"])


def without(node: dict[Any, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """`node` without some keys."""
    return {str(key): value for key, value in node.items() if key not in names}

"""The keys of `task`: what describes it, what its Lightning module takes, how it is evaluated.

A task whose evaluation has settings of its own (registration) holds them beside those of the
training, so that `task.protocol=fcgf` is all there is to type; they are told apart here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pcnn.experiment.registration_options import RegistrationOptions
from pcnn.experiment.schema import ABOUT
from pcnn.experiment.targets import Target

#: Keys that describe a task; they are arguments of nothing.
ABOUT_TASK = tuple(ABOUT["task"])

#: By the task's name, the settings of its evaluation.
EVALUATIONS: Mapping[str, type] = {"registration": RegistrationOptions}


def training_part(task: Mapping[str, Any]) -> dict[str, Any]:
    """The node of the Lightning module: `_target_` and its arguments."""
    others = {*ABOUT_TASK, *evaluation_keys(task["name"])}
    return {str(key): value for key, value in task.items() if key not in others}


def evaluation_part(task: Mapping[str, Any]) -> dict[str, Any] | None:
    """The node of the evaluation's settings; None where the task has none."""
    kind = EVALUATIONS.get(task["name"])
    if kind is None:
        return None
    node = {str(key): value for key, value in task.items() if key in evaluation_keys(task["name"])}
    return {**node, "_target_": Target(f"{kind.__module__}.{kind.__qualname__}", kind)}


def evaluation_keys(name: str) -> tuple[str, ...]:
    """Names of the evaluation's settings."""
    kind = EVALUATIONS.get(name)
    return () if kind is None else tuple(field.name for field in fields(kind))

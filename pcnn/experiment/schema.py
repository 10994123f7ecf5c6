"""Types of the configuration keys that belong to no constructor.

Arguments of a `_target_` are checked against its signature instead (`pcnn.experiment.arguments`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Optional

from omegaconf import MISSING

from pcnn.experiment.described_keys import ABOUT_TASK
from pcnn.experiment.registration_options import RegistrationOptions
from pcnn.experiment.targets import Target
from pcnn.ranges import Factor, Seed


@dataclass
class Config:
    """Everything `train.py` reads."""

    model: dict[str, Any] = MISSING  # name, tasks, geometries and the network's arguments
    dataset: dict[str, Any] = MISSING  # name and one block per task: a data module
    geometry: dict[str, Any] = MISSING  # name and arguments of what puts clouds on it
    engine: dict[str, Any] = MISSING  # name, deterministic, and the settings of its paper
    task: dict[str, Any] = MISSING  # name and the Lightning module's arguments
    trainer: dict[str, Any] = MISSING  # arguments of lightning.Trainer
    callbacks: dict[str, Any] = field(default_factory=dict)
    logger: dict[str, Any] = field(default_factory=dict)
    augment: Optional[dict[str, Any]] = None  # noqa: UP045 - OmegaConf reads this at run time
    tta: Optional[dict[str, Any]] = None  # noqa: UP045 - views of test-time augmentation
    global_batch_size: Optional[int] = None  # noqa: UP045 - samples of an optimiser step
    recompute: list[int] = field(default_factory=list)  # levels whose activations are not kept
    seed: Seed = 0
    train: bool = True  # fit
    test: bool = False  # test the best checkpoint, or ckpt_path when not fitted
    ckpt_path: Optional[str] = None  # noqa: UP045
    init_from: Optional[str] = None  # noqa: UP045 - weights to begin with: a name, a checkpoint
    freeze: list[str] = field(default_factory=list)  # patterns of layers that do not learn
    rate_by_depth: Factor = 1.0  # factor of the rate from a stage of the network to the one before
    rate_of: Optional[dict[str, Factor]] = None  # noqa: UP045 - factors of rates, by pattern
    resume: Optional[str] = None  # noqa: UP045 - a run folder to continue
    run_dir: Optional[str] = None  # noqa: UP045 - default logs/<task>/<date_time>
    allow_targets: list[str] = field(default_factory=list)  # packages of the user's own, let in
    tags: list[str] = field(default_factory=list)
    optimized_metric: Optional[str] = None  # noqa: UP045 - what a sweep compares
    data: dict[str, Any] = field(default_factory=dict)  # filled in by a run: source, classes, ...


@dataclass
class EvalConfig(Config):
    """Everything `eval.py` reads: the checkpoint's configuration, with overrides."""

    ckpt_path: str = MISSING
    predictions: Optional[str] = None  # noqa: UP045 - folder for official label files
    submission: Optional[str] = None  # noqa: UP045 - zip of them for SemanticKITTI's test server


#: By the task's name, the settings of its evaluation.
EVALUATIONS: Mapping[str, type] = {"registration": RegistrationOptions}

#: By the task's name, settings that files of earlier runs hold and nothing reads now, with the
#: value that did nothing; any other is refused as unknown.
FORMER: Mapping[str, Mapping[str, Any]] = {"registration": {"copies": 1}}


def training_part(task: Mapping[str, Any]) -> dict[str, Any]:
    """The node of the Lightning module: `_target_` and its arguments."""
    others = {*ABOUT_TASK, *evaluation_keys(task["name"])}
    former = FORMER.get(task["name"], {}).items()
    others |= {key for key, value in former if task.get(key) == value}
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

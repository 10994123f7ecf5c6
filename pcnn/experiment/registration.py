"""Evaluate descriptors on pairs of clouds: hand-made ones, and networks with their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import torch
from hydra.core.hydra_config import HydraConfig
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig

from pcnn.callbacks import RunCheckpoint
from pcnn.console import Console
from pcnn.datasets.registration import PairDataset
from pcnn.experiment import build, report, run_folder
from pcnn.experiment.check import ABOUT_MODEL, checked, without
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.pretrained import described, trained_descriptor
from pcnn.experiment.registration_options import RegistrationOptions
from pcnn.experiment.registration_report import PairReport, report_pairs
from pcnn.experiment.run_folder import nearby
from pcnn.experiment.schema import EvalConfig, evaluation_part
from pcnn.experiment.targets import allowed_packages
from pcnn.experiment.weights import config_of
from pcnn.registration.descriptor import Descriptor


@dataclass
class UntrainedConfig(EvalConfig):
    """The configuration of `eval.py` without a checkpoint."""

    ckpt_path: Optional[str] = None  # type: ignore[assignment]  # noqa: UP045 - read at run time


def evaluate_untrained(cfg: DictConfig) -> float | None:
    """Run `eval.py model=fpfh`: tables on screen, metrics.json, pairs.csv, curves and pictures.

    Returns:
        Registration recall at the first number of samples.

    Raises:
        ConfigError: the configuration cannot be run.
        FileNotFoundError: data is missing.
    """
    folder = nearby(Path(HydraConfig.get().runtime.output_dir))
    try:
        cfg = checked(cfg, UntrainedConfig)
        if cfg.ckpt_path is not None:
            raise ConfigError(
                f"model={cfg.model.name} has no weights, so ckpt_path names nothing.\n"
                f"possible: python eval.py model={cfg.model.name} dataset={cfg.dataset.name}"
            )
        allow = allowed_packages(cfg)
        with build.refused_values():
            module = build.make(build.plain(cfg.dataset.tasks[cfg.task.name]), "dataset", allow)
            data: PairDataset = module.pairs("test")
            node = without(build.plain(cfg.model), ABOUT_MODEL)
            descriptor = build.make(node, "model", allow)
        cfg.data = {"source": data.source_kind, "ground_truth": data.ground_truth}
        run_folder.record(folder, cfg, resumed=False)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        done = report_descriptor(cfg, folder, data, descriptor, device)
        report.write_metrics(folder, cfg, done.figures, 0, None, done.facts)
        report.say_files(Console(), folder)
        return done.recall
    finally:
        run_folder.drop_if_empty(folder)


def evaluate_trained(
    cfg: DictConfig,
    folder: Path,
    data: PairDataset,
    checkpoint: str | Path,
    device: torch.device,
    loggers: Sequence[Logger] = (),
) -> PairReport:
    """Evaluate the network of a checkpoint on the pairs of the test split.

    Args:
        cfg: of the evaluation, `cfg.data` filled in; its geometry need not be the training's.
        folder: run folder.
        data: the pairs.
        checkpoint: weights.
        device: where everything computes.
        loggers: W&B among them gets tables, curves and clouds.

    Raises:
        ConfigError: the configuration cannot be run.
        FileNotFoundError: clouds are missing.
    """
    with build.refused_values():
        found = RunCheckpoint.read(checkpoint, mmap=False)
        name = described(cfg, checkpoint, str(config_of(found)["data"]["source"]))
        descriptor = trained_descriptor(cfg, found.weights, name, device)
    return report_descriptor(cfg, folder, data, descriptor, device, loggers)


def report_descriptor(
    cfg: DictConfig,
    folder: Path,
    data: PairDataset,
    descriptor: Descriptor,
    device: torch.device | str,
    loggers: Sequence[Logger] = (),
) -> PairReport:
    """Evaluate a descriptor as `cfg.task` says.

    Raises:
        ConfigError: a value is refused, or a package that is asked for is not installed.
    """
    node = evaluation_part(build.plain(cfg.task))
    assert node is not None  # registration has settings of its evaluation
    with build.refused_values():
        options: RegistrationOptions = build.make(node, "task")
        return report_pairs(cfg, folder, data, descriptor, options, device, loggers)

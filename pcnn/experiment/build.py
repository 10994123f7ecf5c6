"""Make what a training needs of a configuration: data, task, trainer, callbacks, loggers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, ProgressBar
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from pcnn.config import make, named_after
from pcnn.errors import ConfigError
from pcnn.experiment.networks import network
from pcnn.experiment.run_config import (
    allowed,
    data_module,
    resolved,
    task_parts,
    views,
    without,
)
from pcnn.losses import inverse_log_frequency
from pcnn.nn import PlannedModule

log = logging.getLogger(__name__)

#: Value of `task.loss.weight` in place of numbers.
COUNTED = "counted"
#: Clouds that are read at most; frequencies need no more.
MAX_CLOUDS = 500
# arguments of callbacks and loggers that are paths in the run folder
PATHS = ("folder", "path", "save_dir")


def data(cfg: DictConfig) -> L.LightningDataModule:
    """The data module of the chosen data set, its files found."""
    module = data_module(cfg)
    with named_after("dataset"):
        # on every rank: a simulator locks, and later calls find its files
        module.prepare_data()
        module.setup("fit" if cfg.train else "test")
    return module


def task(cfg: DictConfig) -> L.LightningModule:
    """The Lightning module around a new network; `cfg.data` says what the data is like."""
    node, _ = task_parts(cfg)
    net = network(cfg, int(cfg.data.in_channels), int(cfg.data.out_channels))
    if isinstance(net, PlannedModule):
        net.graphs = cfg.trainer.get("cuda_graphs") is not False
    facts = resolved(cfg.data)
    module = make(
        {**node, "net": net},
        "task",
        allowed(cfg),
        # auto: the machine has not been asked
        cuda_graphs=cfg.trainer.get("cuda_graphs") is True,
        views=views(cfg),
        **{key: facts[key] for key in ("class_names", "voxel_size", "benchmark") if key in facts},
    )
    if not isinstance(module, L.LightningModule):
        raise ConfigError("task._target_", "a LightningModule is needed")
    _try_schedule(module, node)
    return module


def _try_schedule(module: Any, node: Mapping[str, Any]) -> None:
    """Make the optimiser of one parameter, and its schedule: values refused show before the fit."""
    if not isinstance(node.get("optimizer"), Mapping):
        return
    with named_after("task.optimizer", node["optimizer"]):
        optimizer = module.make_optimizer([torch.nn.Parameter(torch.zeros(1))])
    with named_after("task.scheduler", node.get("scheduler")):
        module.make_scheduler(optimizer, total_steps=2)


def callbacks(cfg: DictConfig, folder: Path, given: Mapping[str, Any]) -> list[Callback]:
    """The callbacks, each with those of the given values that its constructor asks for by name."""
    return _made_of("callbacks", cfg, folder, given, Callback)


def loggers(cfg: DictConfig, folder: Path, given: Mapping[str, Any]) -> list[Logger]:
    """The loggers, each with those of the given values that its constructor asks for by name."""
    return _made_of("logger", cfg, folder, given, Logger)


def _made_of(
    group: str, cfg: DictConfig, folder: Path, given: Mapping[str, Any], kind: type
) -> list[Any]:
    made = []
    for name, node in resolved(cfg[group]).items():
        if node is None:  # left out
            continue
        where = f"{group}.{name}"
        paths = {key: str(folder / node[key]) for key in PATHS if isinstance(node.get(key), str)}
        one = make({**node, **paths}, where, allowed(cfg), **given)
        if not isinstance(one, kind):
            raise ConfigError(f"{where}._target_", f"a {kind.__name__} is needed")
        made.append(one)
    return made


def trainer(
    cfg: DictConfig, folder: Path, callbacks: list[Callback], loggers: list[Logger]
) -> L.Trainer:
    """The trainer; its files go to the run folder."""
    node = without(resolved(cfg.trainer), "trainer")
    if node.get("enable_progress_bar") is False:  # Lightning refuses the two together
        callbacks = [callback for callback in callbacks if not isinstance(callback, ProgressBar)]
    accelerator = node.get("accelerator")
    here = torch.cuda.is_available() or (accelerator == "gpu" and torch.backends.mps.is_available())
    if accelerator in ("gpu", "cuda") and not here:
        raise ConfigError(
            "trainer.accelerator", f"torch sees no {accelerator} here (pcnn doctor says why)"
        )
    if type(node.get("val_check_interval")) is int and node.get("check_val_every_n_epoch") is None:
        node["val_check_interval"] *= max(1, int(node.get("accumulate_grad_batches", 1)))
    made = make(
        node,
        "trainer",
        allowed(cfg),
        callbacks=callbacks,
        logger=loggers or False,
        default_root_dir=folder,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
    )
    if not isinstance(made, L.Trainer):
        raise ConfigError("trainer._target_", "a Trainer of Lightning's is needed")
    return made


def with_counted_weights(cfg: DictConfig, datamodule: Any) -> DictConfig:
    """The configuration with numbers in the place of every ``weight: counted`` of the loss."""
    loss = OmegaConf.to_container(cfg.task.loss) if cfg.task.get("loss") is not None else None
    if filled_in(loss, []) == loss:
        return cfg
    counts = class_counts(datamodule.dataset("train"), len(cfg.data.class_names))
    absent = [name for name, n in zip(cfg.data.class_names, counts, strict=True) if int(n) == 0]
    if absent:
        log.warning(
            "no training cloud has a point of %s: the loss gives it the largest weight",
            ", ".join(absent),
        )
    weights = [round(weight, 4) for weight in inverse_log_frequency(counts).tolist()]
    cfg = cfg.copy()
    cfg.task.loss = filled_in(OmegaConf.to_container(cfg.task.loss, resolve=True), weights)
    return cfg


def filled_in(node: Any, weights: list[float]) -> Any:
    """The node with the weights where they are asked for."""
    if isinstance(node, list):
        return [filled_in(one, weights) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        key: weights if key == "weight" and value == COUNTED else filled_in(value, weights)
        for key, value in node.items()
    }


def class_counts(dataset: Any, classes: int) -> Tensor:
    """Labelled points of every class [C], or clouds where these have one label each."""
    if getattr(dataset, "classes", None) is not None:
        return torch.bincount(torch.as_tensor(dataset.classes), minlength=classes)
    chosen = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), MAX_CLOUDS)).round())
    counts = torch.zeros(classes, dtype=torch.int64)
    for index in chosen.astype(int).tolist():
        labels = dataset.read(index).labels
        if labels is not None:
            counts += torch.bincount(labels[labels < classes], minlength=classes)
    return counts


class LabelWriter(Callback):
    """While testing, write a label file for every scan: one raw id a point, in the file's order."""

    def __init__(self, folder: str | Path, ignore_index: int = 255) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.ignore_index = ignore_index

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Write the files of one batch; every rank writes its own scans."""
        from pcnn.datasets.label_files import write_label_file

        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        for scan, name in enumerate(batch.names if outputs is not None else ()):
            classes = batch.full_scan(scan, outputs["predictions"], self.ignore_index)
            path = self.folder / data.sets.prediction_path(name)
            write_label_file(path, data.sets.label_map.decode(classes.cpu().numpy()))


def check_apart(folder: Path, datamodule: Any) -> None:
    """Refuse a folder in which label files would lie among the data's own files."""
    dataset = datamodule.dataset("test")
    rows = range(0 if dataset is None else len(dataset))
    wanted = {(folder / datamodule.sets.prediction_path(dataset.name(row))).parent for row in rows}
    own = {path.parent.resolve() for row in rows for path in dataset.sources(row)}
    for place in sorted(wanted):
        if place.resolve() in own:
            raise ConfigError("predictions", f"label files in {place} would lie among the data")

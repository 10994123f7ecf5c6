"""Class weights of a loss, counted from the training set where the configuration asks for it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from pcnn.losses import inverse_log_frequency

log = logging.getLogger(__name__)

#: Value of `task.loss.weight` in place of numbers.
COUNTED = "counted"
#: Clouds that are read at most; frequencies need no more.
MAX_CLOUDS = 500


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

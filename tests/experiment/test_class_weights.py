from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from pcnn.experiment.build import with_counted_weights
from pcnn.losses import CrossEntropy, inverse_log_frequency


class Clouds:
    """A set whose clouds hold the given labels; notes which were read."""

    def __init__(self, labels: list[Any]) -> None:
        self.given, self.was_read = labels, []

    def __len__(self) -> int:
        return len(self.given)

    def read(self, index: int) -> Any:
        self.was_read.append(index)
        labels = self.given[index]
        return SimpleNamespace(labels=None if labels is None else torch.tensor(labels))


def config(loss: Any, train: bool = True) -> DictConfig:
    return OmegaConf.create(
        {"train": train, "task": {"loss": loss}, "data": {"class_names": ["a", "b", "c"]}}
    )


def module(dataset: Any) -> Any:
    return SimpleNamespace(dataset=lambda split: dataset)


def test_weights_are_counted_over_the_labels_of_the_training_set() -> None:
    dataset = Clouds([[0, 0, 1, 255], None, [0]])
    loss = {"losses": [{"_target_": "x", "weight": "counted"}, {"_target_": "y"}], "weights": [1]}
    filled = with_counted_weights(config(loss), module(dataset))
    weights = filled.task.loss.losses[0].weight
    torch.testing.assert_close(
        torch.tensor(list(weights)), inverse_log_frequency([3, 1, 0]), atol=1e-4, rtol=0
    )
    assert dict(filled.task.loss.losses[1]) == {"_target_": "y"}
    assert filled.task.loss.weights == [1]
    CrossEntropy(list(weights))

"""Values against types, and arguments against signatures: the key of what is wrong is named."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Union

import pytest
import torch

from pcnn.config import make, named_after, refusal
from pcnn.datasets.transforms import Augmentation
from pcnn.errors import ConfigError
from pcnn.ranges import Count, Share

GOOD = [
    (3, int),
    (None, int | None),
    ("a", str | Path),
    ("a", Path),
    ([1, 2], Sequence[int]),
    ([1, 2, 3], float | tuple[float, float, float]),
    ("max", Literal["max", "min"]),
    (math.sin, Callable[..., Any]),
    (0.1, Union[float, torch.Tensor]),  # noqa: UP007
    (object(), Any),
    (1, Count),
    (Augmentation(), Augmentation | None),
]
BAD = [
    (True, float),
    (1, str),
    ([1.0], tuple[float, float]),
    (3, list[int]),
    ("mean", Literal["max", "min"]),
    ("abc", Union[float, torch.Tensor]),  # noqa: UP007
    (math.nan, float),
    (-math.inf, float | None),
    (0, Count),
    (1.5, Share),
    (object(), Augmentation),
]


@pytest.mark.parametrize(("value", "hint"), GOOD)
def test_taken(value: Any, hint: Any) -> None:
    assert refusal(value, hint) is None


@pytest.mark.parametrize(("value", "hint"), BAD)
def test_refused(value: Any, hint: Any) -> None:
    assert refusal(value, hint)


ADAMW = {"_target_": "torch.optim.AdamW", "_partial_": True}
LASER = {"_target_": "pcnn.datasets.transforms.LaserMix"}
AUGMENT = "pcnn.datasets.transforms.Augmentation"


@pytest.mark.parametrize(
    ("where", "node", "key"),
    [
        ("augment", {"_target_": AUGMENT, "flips": True}, "augment.flips"),
        ("augment", {"_target_": AUGMENT, "jitter": -1.0}, "augment.jitter"),
        ("augment", {"_target_": AUGMENT, "mix": {**LASER, "area": []}}, "augment.mix.area"),
        ("augment", {"_target_": AUGMENT, "_args_": [1]}, "augment._args_"),
        ("dataset", {"_target_": "pcnn.datamodules.CloudDataModule"}, "dataset.sets"),
        ("task.optimizer", {**ADAMW, "lr": math.inf}, "task.optimizer.lr"),
        ("trainer", {"_target_": "lightning.Trainer", "max_steps": 0}, "trainer.max_steps"),
        ("trainer", {"_target_": "lightning.Trainer", "max_steps": 1.5}, "trainer.max_steps"),
    ],
)
def test_the_key_of_a_wrong_argument_is_named(where: str, node: Any, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make(node, where)
    assert refused.value.key == key
    assert refused.value.rule


def test_refusals_of_constructors_name_their_key() -> None:
    for error in (ValueError("size is too large"), ImportError("no size")):
        with pytest.raises(ConfigError) as refused, named_after("group", {"size": 3, "other": 4}):
            raise error
        assert refused.value.key == "group.size"
    with pytest.raises(TypeError), named_after("group"):  # a defect stays one
        raise TypeError

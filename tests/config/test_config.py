"""Values against types, and arguments against signatures: the key of what is wrong is named."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest
import torch

from pcnn.config import make, named_after, refusal
from pcnn.config.values import check_fields, check_plain
from pcnn.datasets.transforms import Augmentation
from pcnn.errors import ConfigError
from pcnn.ranges import Count, Length, Share

GOOD = [
    (3, int),
    (3, float),
    ("a", str),
    (None, Optional[int]),  # noqa: UP045 - libraries still write it so
    (None, int | None),
    ("a", str | Path),
    ("a", Path),
    ([1, 2], Sequence[int]),
    ([0.1, 1], tuple[float, float]),
    ([1, 2, 3], float | tuple[float, float, float]),
    ("max", Literal["max", "min"]),
    ({"a": 1}, Mapping[str, int]),
    (math.sin, Callable[..., Any]),
    (0.1, Union[float, torch.Tensor]),  # noqa: UP007
    (object(), Any),
    (1, Count),
    (Augmentation(), Augmentation | None),
]
BAD = [
    ("3", int),
    (True, int),
    (True, float),
    (1, str),
    ("abc", Sequence[int]),
    ([1.0], tuple[float, float]),
    (3, list[int]),
    ("mean", Literal["max", "min"]),
    ("abc", Union[float, torch.Tensor]),  # noqa: UP007
    ("abc", Callable[..., Any]),
    (math.nan, float),
    (-math.inf, float | None),
    (0, Count),
    (0.0, Length),
    (1.5, Share),
    (object(), Augmentation),
    ({"a": 1}, Augmentation),
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
        ("augment", {"_target_": AUGMENT, "flip": 1}, "augment.flip"),
        ("augment", {"_target_": AUGMENT, "jitter": -1.0}, "augment.jitter"),
        ("augment", {"_target_": AUGMENT, "mix": {**LASER, "area": []}}, "augment.mix.area"),
        ("augment", {"_target_": AUGMENT, "_args_": [1]}, "augment._args_"),
        ("augment", {"_target_": f"{AUGMENT}s"}, "augment._target_"),
        ("augment", 3, "augment"),
        ("dataset", {"_target_": "pcnn.datamodules.CloudDataModule"}, "dataset.sets"),
        ("task.optimizer", {**ADAMW, "lr": 0}, "task.optimizer.lr"),
        ("task.optimizer", {**ADAMW, "learning": 1}, "task.optimizer.learning"),
        ("trainer", {"_target_": "lightning.Trainer", "max_steps": 0}, "trainer.max_steps"),
        ("trainer", {"_target_": "lightning.Trainer", "max_steps": 1.5}, "trainer.max_steps"),
        ("trainer", {"_target_": "lightning.Trainer", "precision": "fp8"}, "trainer.precision"),
    ],
)
def test_the_key_of_a_wrong_argument_is_named(where: str, node: Any, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make(node, where)
    assert refused.value.key == key
    assert refused.value.rule


def test_given_values_reach_every_node_that_asks_for_them() -> None:
    node = {
        "_target_": "pcnn.models.sparse_resnet_for",
        "backbone": {"_target_": "pcnn.models.SparseResNet21", "width": 0.125},
    }
    net = make(node, "model", in_channels=4, out_channels=3, task="segmentation", engine="auto")
    assert net.in_channels == 4
    bound = make({**ADAMW, "lr": 0.1}, "task.optimizer", in_channels=4)
    assert bound.keywords == {"lr": 0.1}


def test_refusals_of_constructors_name_their_key() -> None:
    for error in (ValueError("size is too large"), ImportError("no size")):
        with pytest.raises(ConfigError) as refused, named_after("group", {"size": 3, "other": 4}):
            raise error
        assert refused.value.key == "group.size"
    with pytest.raises(TypeError), named_after("group"):  # a defect stays one
        raise TypeError


def test_fields_of_dataclasses_keep_to_their_types() -> None:
    check_fields(Augmentation(scale=(0.9, 1.1)))
    for wrong in ({"jitter": -1.0}, {"scale": (0.0, 1.0)}, {"flip": "yes"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Augmentation(**wrong)


@pytest.mark.parametrize("value", [{1, 2}, object(), {(1, 2): 3}, b"bytes", [torch.ones(1)]])
def test_values_are_plain(value: Any) -> None:
    check_plain({"a": [1, None, True, 0.5, "b", {3: "c"}]})
    with pytest.raises(ConfigError):
        check_plain({"a": {"b": value}})

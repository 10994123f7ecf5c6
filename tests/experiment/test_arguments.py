from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest
import torch

from pcnn.experiment.arguments import accepts, check_arguments, named
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.targets import Target

GOOD = [
    (3, int),
    (3, float),
    (0.5, float),
    (True, bool),
    ("a", str),
    (None, Optional[int]),  # noqa: UP045 - libraries still write it so
    (None, int | None),
    ("a", str | Path),
    ("a", Path),
    ([1, 2], Sequence[int]),
    ([1, 2], tuple[int, ...]),
    ([0.1, 1], tuple[float, float]),
    ([], list[str]),
    ([1, 2, 3], float | tuple[float, float, float]),
    ("max", Literal["max", "min"]),
    ({"a": 1}, Mapping[str, int]),
    ({"_target_": "x"}, Callable[..., Any]),
    (0.1, Union[float, torch.Tensor]),  # noqa: UP007
    (object(), Any),
]
BAD = [
    ("3", int),
    (3.5, int),
    (True, int),
    (True, float),
    ("fast", float),
    (1, bool),
    (1, str),
    (None, int),
    ("abc", Sequence[int]),
    ([1, "a"], Sequence[int]),
    ([1.0], tuple[float, float]),
    (3, list[int]),
    ([1, 2], str),
    ("mean", Literal["max", "min"]),
    ("abc", Union[float, torch.Tensor]),  # noqa: UP007
    ("abc", Callable[..., Any]),
]


@pytest.mark.parametrize(("value", "hint"), GOOD)
def test_accepted(value: Any, hint: Any) -> None:
    assert accepts(value, hint)


@pytest.mark.parametrize(("value", "hint"), BAD)
def test_refused(value: Any, hint: Any) -> None:
    assert not accepts(value, hint)


def test_types_in_words() -> None:
    assert named(int | None) == "a whole number or null"
    assert named(tuple[float, float]) == "[a number, a number]"
    assert named(Sequence[int]) == "[a whole number]"
    assert named(Literal["max", "min"]) == "max, min"


def target(steps: int, rate: float = 1.0, inner: Any = None) -> None:
    """Target of the nodes below."""


def node(**arguments: Any) -> dict[str, Any]:
    return {"_target_": Target("a.target", target), **arguments}


def refusal(resolved: dict[str, Any], written: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        check_arguments(resolved, written or resolved, "group", frozenset())
    return str(error.value)


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcnn.experiment.arguments.resolve_name", lambda name: target)


def test_names_the_key_the_user_set() -> None:
    assert "group.rate=fast" in refusal(node(rate="fast"))
    assert "dataset.rate=fast" in refusal(node(rate="fast"), node(rate="${dataset.rate}"))


def test_unknown_argument_inside_a_nested_node() -> None:
    said = refusal(node(inner=node(stesp=3)))
    assert "group.inner.stesp does not exist. Did you mean steps?" in said


def test_good_node_passes() -> None:
    check_arguments(node(steps=3, rate=0.5, inner=node(steps=1)), node(), "group", frozenset())

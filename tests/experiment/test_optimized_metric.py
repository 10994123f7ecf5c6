from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from rich.console import Console

from pcnn.experiment.errors import ConfigError
from pcnn.experiment.run import optimized
from pcnn.experiment.weights import check_finite


def found(name: str | None, metrics: dict[str, float], train: bool = True) -> tuple[Any, str]:
    cfg = OmegaConf.create({"optimized_metric": name, "task": {"metric": "val/a"}, "train": train})
    said = io.StringIO()
    return optimized(cfg, metrics, Console(file=said, width=200)), said.getvalue()


def test_the_figure_of_a_sweep_is_there_or_told() -> None:
    assert found("val/a", {"val/a": 2.0}) == (2.0, "")
    assert found(None, {"val/a": 2.0}) == (None, "")
    with pytest.raises(ConfigError, match=r"=val/b is no figure.*\npossible: val/a"):
        found("val/b", {"val/a": 2.0})
    value, said = found("val/a", {})
    assert value is None
    assert "there is no val/a: trainer.limit_val_batches=0" in said
    assert found("val/a", {"test/a": 1.0}, train=False) == (None, "")


def test_weights_of_nan_are_refused_by_name() -> None:
    check_finite({"net.a": torch.ones(2), "n": torch.tensor(3)}, "x.ckpt")
    with pytest.raises(ConfigError, match=r"x\.ckpt: the weights net\.b hold NaN"):
        check_finite({"net.a": torch.ones(2), "net.b": torch.tensor([1, torch.nan])}, "x.ckpt")

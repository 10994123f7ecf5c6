from __future__ import annotations

from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from pcnn.errors import ConfigError, FileError
from pcnn.experiment.run import optimized
from pcnn.experiment.weights import check_finite


def found(name: str | None, metrics: dict[str, float]) -> Any:
    cfg = OmegaConf.create({"optimized_metric": name, "task": {"metric": "val/a"}})
    return optimized(cfg, metrics)


def test_the_figure_of_a_sweep_is_there_or_told() -> None:
    assert found("val/a", {"val/a": 2.0}) == 2.0
    assert found(None, {"val/a": 2.0}) is None
    with pytest.raises(ConfigError, match="optimized_metric"):
        found("val/b", {"val/a": 2.0})
    assert found("val/a", {}) is None
    assert found("val/a", {"test/a": 1.0}) is None


def test_weights_of_nan_are_refused_by_name() -> None:
    check_finite({"net.a": torch.ones(2), "n": torch.tensor(3)}, "x.ckpt")
    with pytest.raises(FileError, match=r"x\.ckpt: the weights net\.b hold NaN"):
        check_finite({"net.a": torch.ones(2), "net.b": torch.tensor([1, torch.nan])}, "x.ckpt")

"""One rule says whether clouds are rooms or streets, for `pcnn predict` and `pcnn register`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.experiment import descriptors
from pcnn.experiment.options import RegisterOptions
from pcnn.registration.cloud_measures import extent, measured, span


def room() -> Tensor:
    return torch.rand(3000, 3, generator=torch.Generator().manual_seed(0)) * 4


def street() -> Tensor:
    """A narrow street: nine tenths of its points lie near the sensor, the far ones are sparse."""
    draw = np.random.default_rng(0)
    near = draw.uniform(-5, 5, (20_000, 3)) * [1, 1, 0]
    ahead = np.column_stack(
        [np.linspace(-60, 60, 600), draw.uniform(-4, 4, (600, 1)), np.zeros(600)]
    )
    return torch.from_numpy(np.concatenate([near, ahead]).astype(np.float32))


def reason(*clouds: Tensor) -> str:
    """What registration gives as its reason, which prediction shares."""
    return descriptors.chosen(RegisterOptions(), measured(clouds))[0].reason


def test_cells_decide_not_points() -> None:
    assert reason(room()) == "reg_rooms: the cloud spans 4 m (up to 20 m: reg_rooms)"
    assert extent(street()) < 20  # so do most points
    assert reason(street()).startswith("reg_streets: the cloud spans 97.8 m")
    sparse = torch.rand(300, 3, generator=torch.Generator().manual_seed(1)) * 80
    assert span(sparse) > 60  # where most points are alone, none is a stray
    assert span(torch.rand(1, 3)) == span(torch.zeros(0, 3)) == 0


def test_an_empty_cloud_is_an_error(tmp_path: Path) -> None:
    empty = np.zeros((0, 3), np.float32)
    np.save(tmp_path / "a.npy", empty)
    for call in (pcnn.predict, lambda path: pcnn.register(path, room())):
        with pytest.raises(ValueError, match=r"a\.npy: .*the cloud is empty"):
            call(tmp_path / "a.npy")

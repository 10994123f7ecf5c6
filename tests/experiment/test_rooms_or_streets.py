"""One rule says whether clouds are rooms or streets, or were seen from the air."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np
import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.experiment import descriptors
from pcnn.experiment.options import RegisterOptions
from pcnn.experiment.predictor import from_the_air
from pcnn.registration.cloud_measures import extent, measured, span
from tests.cli.invoking import invoke


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


def test_a_tile_seen_from_the_air_gets_standard_classes(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    places = draw.uniform(0, 60, (20_000, 3)) * [1, 1, 0] + draw.normal(0, 0.03, (20_000, 3))
    house = (abs(places[:, :2] - 30) < 9).all(1)
    places[house, 2] += 7
    header = laspy.LasHeader(point_format=6, version="1.4")
    header.scales, header.offsets = [0.001] * 3, [412_000, 5_412_000, 0]
    las = laspy.LasData(header)
    las.x, las.y, las.z = (places + np.array([412_345, 5_412_345, 812])).T
    las.return_number = las.number_of_returns = np.ones(len(places), np.uint8)
    las.write(tmp_path / "tile.laz")
    text = invoke("predict", tmp_path / "tile.laz", "--out", tmp_path / "out", "--no-ply")
    assert "seg_aerial" in text
    found = np.asarray(laspy.read(tmp_path / "out/tile.laz").classification)
    assert set(found) <= {1, 2, 3, 4, 5, 6, 17}
    assert (found[~house] == 2).mean() > 0.9
    assert (found[house] == 6).mean() > 0.9
    # a scanner on the ground sees the near ground far denser than the rest
    far = np.abs(draw.standard_normal((20_000, 1))) ** 2 * 30
    turn = draw.uniform(0, 2 * np.pi, (20_000, 1))
    ground = np.concatenate([far * np.cos(turn), far * np.sin(turn), 0 * far], 1)
    assert from_the_air(places, len(places))
    assert not from_the_air(ground, len(ground))

"""Descriptors that are asked in turn: the network of the place, the one of any way, then FPFH."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.experiment import catalogue, descriptors
from pcnn.experiment.descriptors import Choice
from pcnn.registration.descriptor import Described
from pcnn.registration.register import NoOverlapError, Registration
from pcnn.registration.transforms import inverse, transform_points
from tests.registration.poses import random_pose

INTERIORS, TURNED = "reg_rooms", "reg_turned"
STREETS = "reg_streets"
ROOM, STREET = 4.0, 40.0  # extents [m]


class Numbered:
    """The n-th point of every cloud has the same descriptor: the pose is found."""

    name, voxel_size = "numbered", 0.05

    def __call__(self, points: Tensor) -> Described:
        generator = torch.Generator().manual_seed(3)
        return Described(points, torch.rand(len(points), 8, generator=generator))


class Blind(Numbered):
    """Descriptors say nothing: there is no pose."""

    def __call__(self, points: Tensor) -> Described:
        return Described(points, torch.rand(len(points), 8))


@pytest.fixture
def asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[str], Registration | Exception]]:
    """Registers two clouds with stand-ins by the name of their weights; tells who was asked."""
    monkeypatch.setattr(catalogue, "SHIPPED", tmp_path)

    def register(
        extent: float, stand_ins: dict[str, Callable[[], Numbered]]
    ) -> tuple[list[str], Registration | Exception]:
        names: list[str] = []
        for name in (INTERIORS, TURNED, STREETS):
            (tmp_path / f"{name}.safetensors").touch()

        def made(_: object, choice: Choice) -> Numbered:
            names.append(choice.name)
            found = stand_ins[names[-1]]()
            found.voxel_size = extent / 80
            return found

        monkeypatch.setattr(descriptors, "made", made)
        torch.manual_seed(0)
        target = torch.rand(700, 3) * extent
        source = transform_points(inverse(random_pose(2)), target.double())
        try:
            return names, pcnn.register(source, target, cell="trained")
        except (NoOverlapError, ImportError) as error:
            return names, error

    return register


def test_rooms_ask_the_network_of_any_way_after_theirs(asked: Callable[..., tuple]) -> None:
    stand_ins = {INTERIORS: Blind, TURNED: Numbered, "FPFH": Blind}
    names, found = asked(ROOM, stand_ins)
    assert names == [INTERIORS, TURNED]
    assert isinstance(found, Registration)
    torch.testing.assert_close(found.transform, random_pose(2), atol=1e-3, rtol=0)
    assert found.confidence > 0.5
    assert re.fullmatch(
        r"reg_rooms: the clouds span \d\.\d+ m \(up to 20 m: reg_rooms\); the network found "
        "nothing: reg_turned, for clouds that lie any way",
        found.reason,
    )
    names, found = asked(ROOM, {**stand_ins, INTERIORS: Numbered})
    assert names == [INTERIORS]
    assert found.reason.endswith("(up to 20 m: reg_rooms)")


def test_fpfh_follows_both_networks_and_an_error_names_all(asked: Callable[..., tuple]) -> None:
    stand_ins = {INTERIORS: Blind, TURNED: Blind, "FPFH": Numbered}
    names, found = asked(ROOM, stand_ins)
    assert names == [INTERIORS, TURNED, "FPFH"]
    assert found.reason.endswith("(up to 20 m: reg_rooms); both networks found nothing: FPFH")
    assert found.confidence != found.confidence  # of FPFH there is none
    names, error = asked(ROOM, {**stand_ins, "FPFH": Blind})
    assert names == [INTERIORS, TURNED, "FPFH"]
    assert type(error) is NoOverlapError
    told = [line.partition(":")[0].strip() for line in str(error).splitlines()]
    assert told == ["no transform found", INTERIORS, TURNED, "FPFH"]
    assert max(map(len, str(error).splitlines())) <= 100

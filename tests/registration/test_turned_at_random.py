"""Clouds are turned at random, evenly, and described in their own frame."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pcnn.registration.descriptor import Described, TurnedAtRandom, random_rotation
from pcnn.registration.transforms import rotation_angle


def test_clouds_are_turned_and_described_in_their_own_frame() -> None:
    seen = []

    def describe(points: Tensor) -> Described:
        seen.append(points)
        return Described(points[::2], points[::2])

    describe.name, describe.voxel_size = "seen", 0.1  # type: ignore[attr-defined]
    points = 5 + torch.rand(40, 3)
    turned = TurnedAtRandom(describe, 3)  # type: ignore[arg-type]
    found, again = turned(points), turned(points)
    torch.testing.assert_close(found.points, points[::2])
    assert torch.equal(again.points, found.points)
    torch.testing.assert_close(torch.pdist(seen[0]), torch.pdist(points), atol=1e-5, rtol=0)
    assert float((seen[0] - points + points.mean(0)).abs().max()) > 0.1
    other = TurnedAtRandom(describe, 4)(points)  # type: ignore[arg-type]
    assert not torch.equal(other.features, found.features)
    assert (turned.name, turned.voxel_size) == ("seen, clouds turned at random", 0.1)
    generator = torch.Generator().manual_seed(0)
    angles = [float(rotation_angle(random_rotation(generator))) for _ in range(300)]
    assert np.mean(angles) == pytest.approx(math.degrees(math.pi / 2 + 2 / math.pi), abs=6)

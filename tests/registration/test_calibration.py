"""Pairs of one place and of two are judged, and a verifier is fitted to them."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.registration.calibration import calibrated, judged_pairs
from pcnn.registration.descriptor import Described
from pcnn.registration.downsample import voxel_means
from pcnn.registration.register import default_settings
from pcnn.registration.transforms import inverse, transform_points
from tests.registration.clouds import place
from tests.registration.poses import random_pose


@dataclass
class Places:
    """Four places, each seen twice; descriptors are coordinates in the place, of two in three."""

    name, benchmark, ground_truth, source_kind = "places", "threedmatch", "known", "simulated"
    voxel_size, root = 0.05, Path()
    pairs: list[RegistrationPair] = field(default_factory=list)
    held: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    features: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in range(4):
            world, truth = voxel_means(place(number), 0.05)[::9], random_pose(number)
            moved = transform_points(inverse(truth), world.double()).float()
            self.pairs.append(RegistrationPair(str(number), 0, 1, truth))
            self.held |= {(str(number), 0): world, (str(number), 1): moved}
            mixed = world.clone()
            mixed[::3] = mixed[::3].roll(5, 0)
            self.features |= {len(self.features): world, len(self.features) + 1: mixed}

    def cloud(self, scene: str, index: int) -> Tensor:
        return self.held[scene, index]

    def notes(self) -> list[str]:
        return []

    def __call__(self, points: Tensor) -> Described:
        (row,) = [row for row, own in enumerate(self.held.values()) if own is points]
        return Described(points, self.features[row])


def test_pairs_of_one_place_and_of_two_are_told_apart() -> None:
    data = Places()
    settings = default_settings(0.05)
    judged = judged_pairs(data, data, settings, 2000, 5)
    assert [pair.overlaps for pair in judged].count(True) == 4
    assert 2 <= len(judged) - 4 <= 3  # the first place has none before it
    assert all(bool(pair.right[0]) == pair.overlaps for pair in judged)
    found = calibrated(judged, "four places", 0.5)
    assert (found.verifier.made, found.verifier.threshold) == ("four places", 0.5)
    sure = [found.verifier.confidence(pair.evidence[0]) for pair in judged]
    least = min(c for c, pair in zip(sure, judged, strict=True) if pair.overlaps)
    assert least > max(c for c, pair in zip(sure, judged, strict=True) if not pair.overlaps)
    with pytest.raises(ValueError, match="solver=cliques"):
        judged_pairs(data, data, default_settings(0.05, solver="ransac"), 2000, 5)
    data.pairs = data.pairs[:2]  # of one fold: a model would be judged on nothing else
    with pytest.raises(ValueError, match="2 scenes; three or more"):
        judged_pairs(data, data, settings, 2000, 5)
    assert torch.isfinite(found.confidence).all()

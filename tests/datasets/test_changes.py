"""Every random change by its figures: what a generator makes of a cloud stays for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.registration import PairAugmentation
from pcnn.datasets.registration.sensors import (
    Beams,
    DepthCamera,
    RangeNoise,
    RangeThinning,
    Sparser,
)
from pcnn.datasets.transforms import (
    Augmentation,
    Chromatic,
    Elastic,
    LaserMix,
    OneOf,
    Pieces,
    PolarMix,
    Remission,
)
from pcnn.datasets.transforms.augment import sample_generator
from tests.datasets.clouds import cloud

OFF = Augmentation(rotate_z=False, scale=None, flip=False, jitter=0.0)
PAIRS = PairAugmentation(rotation=0.0)
#: A change, and of its clouds: points, sum of sizes of coordinates, and of features or transforms.
FIGURES: dict[str, tuple[Any, tuple[int, float, float]]] = {
    "nothing": (OFF, (4500, 94984.61, 6069.6907)),
    "a turn": (replace(OFF, rotate_z=True, rotate_limit=90.0), (4500, 92802.80, 6069.6907)),
    "a scale": (replace(OFF, scale=(0.9, 1.1)), (4500, 99383.61, 6069.6907)),
    "a mirror": (replace(OFF, flip=True, shift=(9.0, 9.0, 0.0)), (4500, 102762.40, 6069.6907)),
    "noise": (replace(OFF, jitter=0.5), (4500, 95351.39, 6069.6907)),
    "drawn noise": (replace(OFF, jitter=(0.0, 2.0)), (4500, 98115.84, 6069.6907)),
    "fewer points": (replace(OFF, drop=0.3), (3166, 66977.03, 4278.8239)),
    "a sector": (replace(OFF, sector=100.0), (1218, 25960.12, 1636.7625)),
    "a tilt": (replace(OFF, tilt=30.0), (4500, 105408.54, 6069.6907)),
    "a shift": (replace(OFF, shift=(5.0, 0.0, 2.0)), (4500, 97792.10, 6069.6907)),
    "elastic": (Elastic(((3.0, 9.0), (9.0, 20.0)), share=1.0), (4500, 99255.87, 6069.6907)),
    "contrast": (Chromatic(1.0, 0.0, 0.05, 0.0), (4500, 94984.61, 6365.6903)),
    "shifted colours": (Chromatic(0.0, 1.0, 0.3, 0.0), (4500, 94984.61, 5277.0907)),
    "noisy colours": (Chromatic(0.0, 0.0, 0.05, 1.0, noise=0.4), (4500, 94984.61, 6186.2768)),
    "forgotten colours": (Chromatic(0.0, 0.0, 0.05, 0.0, forget=0.7), (4500, 94984.61, 6299.6573)),
    "remission": (Remission(forget=0.4, noise=0.2), (4500, 94984.61, 5954.4482)),
    "pieces": (Pieces(share=0.8, radius=(5.0, 12.0), open=0.7, thin=0.8), (492, 8955.98, 663.7525)),
    "bands of lasers": (replace(OFF, mix=LaserMix()), (4499, 94101.56, 6065.4094)),
    "polar": (replace(OFF, mix=PolarMix(swap=0.7, paste=0.7)), (8276, 172450.15, 11185.2774)),
    "one of several": (
        replace(OFF, mix=OneOf((LaserMix(), PolarMix()), (0.3, 0.4))),
        (6430, 135838.04, 8692.4280),
    ),
    "a pair turned": (replace(PAIRS, rotation=60.0), (9000, 202241.43, 17.1457)),
    "a pair turned upright": (
        replace(PAIRS, rotation=60.0, axis="vertical"),
        (9000, 181349.17, 14.7553),
    ),
    "a pair turned any way": (
        replace(PAIRS, rotation=120.0, uniform_rotations=True),
        (9000, 206980.12, 18.3528),
    ),
    "a pair scaled": (
        replace(PAIRS, scale=(0.5, 2.0), scale_probability=0.6),
        (9000, 176583.42, 12.0000),
    ),
    "a pair shifted": (replace(PAIRS, shift=9.0), (9000, 232712.93, 87.8033)),
    "noise of a pair": (replace(PAIRS, jitter=0.5), (9000, 189170.31, 12.0000)),
    "noise of depth": (replace(PAIRS, depth_noise=0.02), (9000, 189031.86, 12.0000)),
    "a warp": (replace(PAIRS, warp=2.0), (9000, 197807.56, 12.0000)),
    "fewer points of a pair": (replace(PAIRS, drop=0.6), (6759, 141094.20, 12.0000)),
    "beams": (replace(PAIRS, sensors=(Beams((2, 4), 2.0, 1.0),)), (7791, 162364.65, 12.0000)),
    "thinner far away": (
        replace(PAIRS, sensors=(RangeThinning((5.0, 9.0)),)),
        (5598, 105316.70, 12.0000),
    ),
    "noise of ranges": (
        replace(PAIRS, sensors=(RangeNoise(0.5, 0.1),)),
        (9000, 188257.44, 12.0000),
    ),
    "a depth camera": (
        replace(PAIRS, sensors=(DepthCamera((15.0, 20.0), 0.01, 0.01),)),
        (5323, 84772.60, 12.0000),
    ),
    "sparser": (replace(PAIRS, sensors=(Sparser((300, 1200)),)), (5250, 110065.08, 12.0000)),
}


def coloured(n: int, seed: int) -> Cloud:
    colours = np.random.default_rng(seed).uniform(0.2, 0.7, (n, 3)).astype(np.float32)
    return replace(cloud(n, seed), features=torch.from_numpy(colours))


def figures(change: Callable[..., Any]) -> tuple[int, float, float]:
    """Of three clouds of 1500 points, summed."""
    count, places, features = 0, 0.0, 0.0
    for epoch in range(3):
        generator = sample_generator(7, epoch, 3)
        first, second = coloured(1500, epoch), coloured(1500, epoch + 9)
        given = first.points.clone(), first.features.clone()
        if isinstance(change, PairAugmentation):
            pair = first.points, second.points, torch.eye(4, dtype=torch.float64)
            found = change(pair, generator)
            made = [(found[0], found[2].abs()), (found[1], found[2][:0])]
        elif isinstance(change, Augmentation):
            found = change(first, generator, lambda _, other=second: other)
            made = [(found.points, found.features)]
        else:
            found = change(first, generator)
            made = [(found.points, found.features)]
        assert torch.equal(first.points, given[0]), "the input itself was changed"
        assert torch.equal(first.features, given[1]), "the input itself was changed"
        for points, values in made:
            count += len(points)
            places += float(points.double().abs().sum())
            features += float(values.double().sum())
    return count, places, features


@pytest.mark.parametrize("name", FIGURES)
def test_a_change_keeps_its_figures(name: str) -> None:
    change, expected = FIGURES[name]
    assert figures(change) == pytest.approx(expected, rel=1e-5)

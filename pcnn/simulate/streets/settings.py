"""What a generated street looks like, drawn once a sequence and recorded with the data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

Split = Literal["train", "val"]

BLOCK_LENGTH = 40.0  # [m] a street is generated block by block, each from its own seed


DISTRICT_BLOCKS = 6  # blocks that share the settings of a district


@dataclass(frozen=True)
class StreetSettings:
    """Numbers that shape the streets and the traffic of one sequence.

    Lengths in metres, speeds in m/s. `*_share` are probabilities, `*_count` means a block and side
    or block. The second half is drawn anew for every district that a sequence drives through.
    """

    bend: float  # largest sideways slope of the centre line
    hill: float  # largest grade
    crown: float  # slope of the street down from its centre line
    camber: float  # largest slope across, changing along the street
    bank_left: float  # slope of the land beyond the sidewalk, away from the street
    bank_right: float
    road_half_width: float
    parking_width: float
    verge_width: float  # grass strip between kerb and sidewalk
    sidewalk_width: float
    kerb_height: float
    relief: float  # amplitude of the terrain near the street
    ego_speed: float
    oncoming_speed: float
    cyclist_speed: float

    front_depth: float  # mean distance between sidewalk and buildings
    building_height: float
    crossing_share: float
    island_share: float
    park_share: float  # plots without a building
    forecourt_share: float
    fence_share: float
    hedge_share: float
    thicket_share: float  # parks that are overgrown
    tree_share: float  # sidewalks with trees
    tree_spacing: float
    leaf_density: float  # leaves met on a metre of the way through a crown
    bush_count: float
    lamp_spacing: float
    sign_count: float
    parked_share: float  # of the parking places that are taken
    presence: float  # share of blocks that hold each of the rarer things
    person_count: float
    bicycle_count: float

    @property
    def lane(self) -> float:
        """Distance of the middle of a lane from the centre line [m]; cyclists keep to the edge."""
        return 0.47 * self.road_half_width


@dataclass(frozen=True)
class SensorSettings:
    """Numbers of the sensor and of the vehicle that carries it, the same all along a sequence."""

    height: float  # [m] of the sensor's origin above the road
    range_noise: float  # [m] standard deviation of one range
    roughness: float  # factor on the roughness of surfaces
    range_bias: float  # [m] standard deviation of the constant error of a beam
    misalignment: float  # [deg] standard deviation of a beam's elevation
    dropout: float  # factor on the share of lost returns
    remission_gain: float
    max_range: float  # [m]
    deskew: float  # share of the sensor's own motion that is taken out of a scan
    blind_shift: float  # [deg] by which the vehicle hides less than the usual one


Ranges = dict[str, tuple[float, float]]

_TRAIN: Ranges = {
    "bend": (0.08, 0.30),
    "hill": (0.005, 0.060),
    "crown": (0.010, 0.040),
    "camber": (0.005, 0.050),
    "bank_left": (-0.06, 0.09),
    "bank_right": (-0.06, 0.09),
    "road_half_width": (4.4, 6.2),
    "parking_width": (2.0, 2.5),
    "verge_width": (0.0, 2.4),
    "sidewalk_width": (1.6, 4.0),
    "kerb_height": (0.06, 0.16),
    "relief": (0.05, 0.35),
    "ego_speed": (6.0, 10.5),
    "oncoming_speed": (6.0, 12.0),
    "cyclist_speed": (3.5, 5.5),
    "front_depth": (1.5, 7.5),
    "building_height": (5.5, 14.0),
    "crossing_share": (0.25, 0.60),
    "island_share": (0.15, 0.45),
    "park_share": (0.25, 0.60),
    "forecourt_share": (0.10, 0.22),
    "fence_share": (0.20, 0.42),
    "hedge_share": (0.38, 0.55),
    "thicket_share": (0.60, 1.00),
    "tree_share": (0.50, 1.00),
    "tree_spacing": (6.0, 12.0),
    "leaf_density": (1.5, 4.5),
    "bush_count": (12.0, 28.0),
    "lamp_spacing": (14.0, 26.0),
    "sign_count": (1.5, 4.5),
    "parked_share": (0.30, 0.70),
    "presence": (0.55, 0.90),
    "person_count": (2.0, 6.0),
    "bicycle_count": (2.0, 4.0),
}

# Validation shifts what a new town would shift; whatever is not named keeps the training range.
_VAL: Ranges = {
    "bend": (0.14, 0.30),
    "hill": (0.020, 0.060),
    "road_half_width": (4.8, 6.0),
    "sidewalk_width": (3.0, 4.2),
    "relief": (0.20, 0.40),
    "ego_speed": (7.5, 8.5),
    "front_depth": (5.0, 9.0),
    "building_height": (8.0, 13.0),
    "tree_spacing": (6.0, 7.5),
    "leaf_density": (2.5, 4.0),
    "presence": (0.90, 1.0),
}

_SENSOR: Ranges = {
    "height": (1.74, 1.84),
    "range_noise": (0.006, 0.011),
    "roughness": (0.2, 0.6),
    "range_bias": (0.005, 0.020),
    "misalignment": (0.02, 0.06),
    "dropout": (0.6, 1.3),
    "remission_gain": (0.90, 1.10),
    "max_range": (78.0, 82.0),
    "deskew": (0.97, 1.0),
    "blind_shift": (-1.0, 1.0),
}

_SENSOR_VAL: Ranges = {
    "range_noise": (0.010, 0.015),
    "dropout": (1.2, 1.5),
    "remission_gain": (0.86, 0.96),
}

_DISTRICT = tuple(f.name for f in fields(StreetSettings))[
    [f.name for f in fields(StreetSettings)].index("front_depth") :
]


def _draw(rng: np.random.Generator, names: Iterable[str], ranges: Ranges) -> dict[str, float]:
    # the order of the names fixes the order of the draws; four digits keep the record readable
    return {name: round(float(rng.uniform(*ranges[name])), 4) for name in names}


def _street_ranges(split: Split) -> Ranges:
    if split not in ("train", "val"):
        raise ValueError(f"split {split!r} is unknown; use 'train' or 'val'")
    return _TRAIN | (_VAL if split == "val" else {})


def draw_settings(rng: np.random.Generator, split: Split) -> StreetSettings:
    """Draw the settings of one sequence, uniformly inside the ranges of its split.

    Raises:
        ValueError: an unknown split.
    """
    names = [f.name for f in fields(StreetSettings)]
    return StreetSettings(**_draw(rng, names, _street_ranges(split)))


def draw_district(
    rng: np.random.Generator, split: Split, settings: StreetSettings
) -> StreetSettings:
    """Draw what differs from district to district; the course and the profile stay."""
    return replace(settings, **_draw(rng, _DISTRICT, _street_ranges(split)))


def draw_sensor_settings(rng: np.random.Generator, split: Split) -> SensorSettings:
    """Draw the sensor of one sequence."""
    ranges = _SENSOR | (_SENSOR_VAL if split == "val" else {})
    return SensorSettings(**_draw(rng, [f.name for f in fields(SensorSettings)], ranges))

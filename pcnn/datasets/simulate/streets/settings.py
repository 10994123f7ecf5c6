"""What a generated street looks like, drawn once a sequence and recorded with the data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

Split = Literal["train", "val"]

BLOCK_LENGTH = 40.0  # [m] a street is generated block by block, each from its own seed


@dataclass(frozen=True)
class StreetSettings:
    """Numbers that shape the streets, the traffic and the sensor of one sequence.

    Lengths in metres, speeds in m/s. `*_share` are probabilities, `*_count` means a block and side
    or block.
    """

    bend: float  # largest sideways slope of the centre line
    hill: float  # largest grade
    road_half_width: float
    parking_width: float
    verge_width: float  # grass strip between kerb and sidewalk
    sidewalk_width: float
    kerb_height: float
    relief: float  # amplitude of the terrain near the street
    front_depth: float  # mean distance between sidewalk and buildings
    building_height: float
    crossing_share: float
    island_share: float
    park_share: float  # plots without a building
    forecourt_share: float
    fence_share: float
    hedge_share: float
    tree_spacing: float
    leaf_density: float  # leaves in a cubic metre of a crown
    bush_count: float
    lamp_spacing: float
    sign_count: float
    parked_share: float  # of the parking places that are taken
    presence: float  # share of blocks that hold each of the rarer things
    person_count: float
    bicycle_count: float
    ego_speed: float
    oncoming_speed: float
    cyclist_speed: float
    sensor_height: float
    range_noise: float  # standard deviation of one range
    dropout: float  # factor on the share of lost returns
    remission_gain: float
    max_range: float

    @property
    def lane(self) -> float:
        """Distance of the middle of a lane from the centre line [m]; cyclists keep to the edge."""
        return 0.47 * self.road_half_width


_TRAIN: dict[str, tuple[float, float]] = {
    "bend": (0.04, 0.18),
    "hill": (0.005, 0.030),
    "road_half_width": (4.2, 5.2),
    "parking_width": (2.1, 2.4),
    "verge_width": (0.0, 1.8),
    "sidewalk_width": (2.2, 3.8),
    "kerb_height": (0.09, 0.15),
    "relief": (0.05, 0.25),
    "front_depth": (2.5, 8.0),
    "building_height": (6.0, 11.0),
    "crossing_share": (0.25, 0.55),
    "island_share": (0.55, 0.85),
    "park_share": (0.20, 0.38),
    "forecourt_share": (0.18, 0.30),
    "fence_share": (0.38, 0.50),
    "hedge_share": (0.40, 0.55),
    "tree_spacing": (6.5, 11.0),
    "leaf_density": (45.0, 80.0),
    "bush_count": (7.0, 14.0),
    "lamp_spacing": (14.0, 22.0),
    "sign_count": (3.0, 5.0),
    "parked_share": (0.50, 0.72),
    "presence": (0.75, 0.95),
    "person_count": (3.0, 6.0),
    "bicycle_count": (2.0, 4.0),
    "ego_speed": (7.0, 9.5),
    "oncoming_speed": (7.0, 11.0),
    "cyclist_speed": (3.5, 5.0),
    "sensor_height": (1.71, 1.75),
    "range_noise": (0.012, 0.022),
    "dropout": (0.8, 1.2),
    "remission_gain": (0.92, 1.08),
    "max_range": (78.0, 82.0),
}

# Validation shifts what a new town would shift; whatever is not named keeps the training range.
_VAL: dict[str, tuple[float, float]] = {
    "bend": (0.12, 0.22),
    "hill": (0.020, 0.040),
    "road_half_width": (4.7, 5.4),
    "sidewalk_width": (3.0, 4.2),
    "kerb_height": (0.08, 0.11),
    "relief": (0.20, 0.35),
    "front_depth": (5.0, 9.0),
    "building_height": (8.0, 13.0),
    "tree_spacing": (6.0, 7.5),
    "leaf_density": (70.0, 95.0),
    "presence": (0.90, 1.0),
    "ego_speed": (7.5, 8.5),
    "range_noise": (0.018, 0.026),
    "dropout": (1.2, 1.5),
    "remission_gain": (0.86, 0.96),
}


def draw_settings(rng: np.random.Generator, split: Split) -> StreetSettings:
    """Draw the settings of one sequence, uniformly inside the ranges of its split.

    Raises:
        ValueError: an unknown split.
    """
    if split not in ("train", "val"):
        raise ValueError(f"split {split!r} is unknown; use 'train' or 'val'")
    ranges = _TRAIN | (_VAL if split == "val" else {})
    # the order of the fields fixes the order of the draws; four digits keep the record readable
    return StreetSettings(
        **{f.name: round(float(rng.uniform(*ranges[f.name])), 4) for f in fields(StreetSettings)}
    )

"""Numbers that shape a street and its sensor, and the ranges that they are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcnn.simulate.simulator import Split, drawn

BLOCK_LENGTH = 40.0  # [m] a street is generated block by block, each from its own seed


@dataclass(frozen=True)
class Scene:
    """What tells a kind of street from others: shares of sides or plots, and factors on counts."""

    share: float  # of courses
    walk: float  # sides with a sidewalk
    verge: float  # sides with a strip of grass along the road
    bay: float  # sides with a parking bay
    deep: float  # bays in which cars stand across
    plots: tuple[float, float, float, float]  # house, park, forecourt, parking lot
    drive: float  # houses with a driveway
    front: float  # [m] more between sidewalk and houses
    bank: float  # deviation of the slope of the land beside the road
    people: float = 1.0  # factor on people and cycles
    trees: float = 1.0  # factor on trees beside the kerb
    wide: float = 1.0  # factor on the width of the road
    speed: float = 1.0
    bends: float = 1.0

    @property
    def is_built_up(self) -> bool:
        """True where houses stand close, and side streets come as often as the style has them."""
        return self.plots[0] > 0.3


SCENES = {
    "town": Scene(0.40, 1.0, 0.12, 0.42, 0.25, (0.35, 0.43, 0.14, 0.08), 0.2, 0.0, 0.01),
    "suburb": Scene(
        0.38, 0.95, 0.50, 0.20, 0.25, (0.53, 0.39, 0.03, 0.05), 0.65, 3.0, 0.06, trees=0.35
    ),
    "country": Scene(
        0.14, 0.5, 0.6, 0.08, 0.3, (0.15, 0.80, 0.02, 0.03), 0.5, 6.0, 0.14, 0.3, 0.25, speed=1.5
    ),
    "highway": Scene(
        0.08, 0.0, 1.0, 0.0, 0.0, (0.0, 1.0, 0.0, 0.0), 0.0, 0.0, 0.18, 0.0, 0.0, 2.0, 2.6, 0.35
    ),
}


def draw_scene(rng: np.random.Generator, split: Split) -> str:
    """Draw the kind of a training street; validation is of towns, which hold every class."""
    shares = [scene.share for scene in SCENES.values()]
    chosen = str(rng.choice(list(SCENES), p=shares))
    return chosen if split == "train" else "town"


@dataclass(frozen=True)
class Course:
    """Settings of a whole sequence, in metres and m/s.

    The second range is of validation, which shifts what a new town would shift.
    """

    bend: float = drawn((0.08, 0.30), (0.14, 0.30))  # largest sideways slope of the centre line
    hill: float = drawn((0.005, 0.060), (0.020, 0.060))  # largest grade
    crown: float = drawn((0.010, 0.040))  # slope of the street down from its centre line
    road_half_width: float = drawn((3.1, 7.4), (4.8, 6.0))
    lane_share: float = drawn((0.28, 0.62), (0.47, 0.47))  # of the half width: middle of a lane
    parking_width: float = drawn((2.0, 2.5))
    sidewalk_width: float = drawn((1.4, 4.8), (3.0, 4.2))
    kerb_height: float = drawn((0.005, 0.13), (0.05, 0.13))
    rise: float = drawn((-0.015, 0.03))  # slope of the land up from the kerb
    paved: float = drawn((0.0, 1.0))  # above a half bays are paved, not of asphalt
    relief: float = drawn((0.08, 0.45), (0.20, 0.40))  # amplitude of the land near the street
    ego_speed: float = drawn((6.0, 10.5), (7.5, 8.5))
    oncoming_speed: float = drawn((6.0, 12.0))
    cyclist_speed: float = drawn((3.5, 5.5))
    scene: str = "town"

    @property
    def kind(self) -> Scene:
        return SCENES[self.scene]

    @property
    def median(self) -> float:
        """Half width of the strip between the carriageways of a highway [m]."""
        return 1.4 if self.scene == "highway" else 0.0

    @property
    def lane(self) -> float:
        """Distance of the middle of a lane from the centre line [m]; cyclists keep to the edge."""
        return max((0.47 if self.median else self.lane_share) * self.road_half_width, 1.35)


@dataclass(frozen=True)
class Style:
    """Settings of a block: `*_share` are probabilities, `*_count` means of a block or side."""

    front_depth: float = drawn((2.0, 9.0), (5.0, 9.0))  # mean from sidewalk to buildings
    building_height: float = drawn((5.5, 14.0), (8.0, 13.0))
    crossing_share: float = drawn((0.25, 0.60))
    fence_share: float = drawn((0.15, 0.35))
    hedge_share: float = drawn((0.35, 0.50))
    tree_share: float = drawn((0.50, 1.00))  # sidewalks with trees
    tree_spacing: float = drawn((6.0, 12.0), (6.0, 7.5))
    bush_count: float = drawn((20.0, 44.0))
    lamp_spacing: float = drawn((14.0, 26.0))
    sign_count: float = drawn((1.5, 4.5))
    parked_share: float = drawn((0.30, 0.70))  # of the parking places that are taken
    presence: float = drawn((0.55, 0.90), (0.90, 1.0))  # of blocks that hold each rarer thing
    person_count: float = drawn((2.0, 6.0))
    bicycle_count: float = drawn((2.0, 4.0))
    stray_count: float = drawn((1.0, 2.6))  # rarer things a plot, anywhere, turned anyhow


@dataclass(frozen=True)
class SensorSettings:
    """Settings of the sensor and of the vehicle that carries it, the same all along a sequence."""

    height: float = drawn((1.74, 1.84))  # [m] of the sensor's origin above the road
    range_noise: float = drawn((0.006, 0.011), (0.010, 0.015))  # [m] deviation of one range
    roughness: float = drawn((0.2, 0.6))  # factor on the roughness of surfaces
    range_bias: float = drawn((0.005, 0.020))  # [m] deviation of the constant error of a beam
    misalignment: float = drawn((0.02, 0.06))  # [deg] deviation of a beam's elevation
    dropout: float = drawn((0.6, 1.3), (1.2, 1.5))  # factor on the share of lost returns
    remission_gain: float = drawn((0.90, 1.10), (0.86, 0.96))
    max_range: float = drawn((78.0, 82.0))  # [m]
    blind_shift: float = drawn((-1.0, 1.0))  # [deg] by which the vehicle hides less than usual

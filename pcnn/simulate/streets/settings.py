"""Numbers that shape a street and its sensor, and the ranges that they are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

from pcnn.simulate.simulator import drawn

BLOCK_LENGTH = 40.0  # [m] a street is generated block by block, each from its own seed


@dataclass(frozen=True)
class Course:
    """Settings of a whole sequence, in metres and m/s.

    The second range is of validation, which shifts what a new town would shift.
    """

    bend: float = drawn((0.08, 0.30), (0.14, 0.30))  # largest sideways slope of the centre line
    hill: float = drawn((0.005, 0.060), (0.020, 0.060))  # largest grade
    crown: float = drawn((0.010, 0.040))  # slope of the street down from its centre line
    road_half_width: float = drawn((4.4, 6.2), (4.8, 6.0))
    parking_width: float = drawn((2.0, 2.5))
    sidewalk_width: float = drawn((1.6, 4.0), (3.0, 4.2))
    kerb_height: float = drawn((0.06, 0.16))
    relief: float = drawn((0.05, 0.35), (0.20, 0.40))  # amplitude of the land near the street
    ego_speed: float = drawn((6.0, 10.5), (7.5, 8.5))
    oncoming_speed: float = drawn((6.0, 12.0))
    cyclist_speed: float = drawn((3.5, 5.5))

    @property
    def lane(self) -> float:
        """Distance of the middle of a lane from the centre line [m]; cyclists keep to the edge."""
        return 0.47 * self.road_half_width


@dataclass(frozen=True)
class Style:
    """Settings of a block: `*_share` are probabilities, `*_count` means of a block or side."""

    front_depth: float = drawn((1.5, 7.5), (5.0, 9.0))  # mean from sidewalk to buildings
    building_height: float = drawn((5.5, 14.0), (8.0, 13.0))
    crossing_share: float = drawn((0.25, 0.60))
    park_share: float = drawn((0.30, 0.65))  # plots without a building
    forecourt_share: float = drawn((0.10, 0.22))
    fence_share: float = drawn((0.25, 0.45))
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

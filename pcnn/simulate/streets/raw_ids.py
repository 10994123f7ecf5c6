"""The raw SemanticKITTI label ids that the simulated streets use.

Source: the published label definition of SemanticKITTI (`semantic-kitti.yaml`). The lower 16 bits
of a label hold one of these ids, the upper 16 bits the instance.
"""

from __future__ import annotations

from enum import IntEnum


class RawId(IntEnum):
    """Raw semantic ids, as official `.label` files hold them."""

    CAR = 10
    BICYCLE = 11
    BUS = 13
    MOTORCYCLE = 15
    TRUCK = 18
    OTHER_VEHICLE = 20
    PERSON = 30
    BICYCLIST = 31
    MOTORCYCLIST = 32
    ROAD = 40
    PARKING = 44
    SIDEWALK = 48
    OTHER_GROUND = 49
    BUILDING = 50
    FENCE = 51
    OTHER_STRUCTURE = 52
    LANE_MARKING = 60
    VEGETATION = 70
    TRUNK = 71
    TERRAIN = 72
    POLE = 80
    TRAFFIC_SIGN = 81
    OTHER_OBJECT = 99


#: the id of a thing that drives or walks, by the id of the same thing at rest
MOVING: dict[int, int] = {
    RawId.CAR: 252,
    RawId.BICYCLIST: 253,
    RawId.PERSON: 254,
    RawId.MOTORCYCLIST: 255,
    RawId.BUS: 257,
    RawId.TRUCK: 258,
    RawId.OTHER_VEHICLE: 259,
}

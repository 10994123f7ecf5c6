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
    MOVING_CAR = 252
    MOVING_BICYCLIST = 253
    MOVING_PERSON = 254
    MOVING_MOTORCYCLIST = 255
    MOVING_BUS = 257
    MOVING_TRUCK = 258
    MOVING_OTHER_VEHICLE = 259


#: the id of a thing that drives or walks, by the id of the same thing at rest
MOVING = {
    RawId.CAR: RawId.MOVING_CAR,
    RawId.BICYCLIST: RawId.MOVING_BICYCLIST,
    RawId.PERSON: RawId.MOVING_PERSON,
    RawId.MOTORCYCLIST: RawId.MOVING_MOTORCYCLIST,
    RawId.BUS: RawId.MOVING_BUS,
    RawId.TRUCK: RawId.MOVING_TRUCK,
    RawId.OTHER_VEHICLE: RawId.MOVING_OTHER_VEHICLE,
}

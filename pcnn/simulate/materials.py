"""What a surface sends back to the sensor.

Remission is a property of the material, not of the class: classes share materials, and the spreads
overlap, so the channel helps a network about as much as it does on real scans.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Material(IntEnum):
    """Surface materials; the value is the row in the tables below."""

    ASPHALT = 0
    ROAD_PAINT = 1
    PAVING = 2
    CONCRETE = 3
    GRAVEL = 4
    GRASS = 5
    LEAF = 6
    BARK = 7
    WOOD = 8
    BRICK = 9
    PLASTER = 10
    GLASS = 11
    METAL = 12
    DARK_PAINT = 13
    MID_PAINT = 14
    LIGHT_PAINT = 15
    RUBBER = 16
    DARK_CLOTH = 17
    LIGHT_CLOTH = 18
    SKIN = 19
    SIGN_FACE = 20
    WINDOW = 21


# columns: mean remission, spread of one return, roughness [m], share of returns at normal
# incidence, share of returns that report 0
_TABLE = np.array(
    [
        [0.32, 0.06, 0.004, 0.997, 0.09],  # asphalt
        [0.50, 0.17, 0.004, 0.997, 0.01],  # road paint
        [0.38, 0.06, 0.006, 0.997, 0.01],  # paving
        [0.42, 0.09, 0.005, 0.997, 0.01],  # concrete
        [0.34, 0.10, 0.020, 0.997, 0.02],  # gravel
        [0.40, 0.09, 0.035, 0.996, 0.02],  # grass
        [0.40, 0.11, 0.020, 0.994, 0.01],  # leaf
        [0.37, 0.12, 0.012, 0.996, 0.04],  # bark
        [0.36, 0.12, 0.006, 0.996, 0.03],  # wood
        [0.48, 0.11, 0.006, 0.997, 0.01],  # brick
        [0.52, 0.13, 0.004, 0.997, 0.01],  # plaster
        [0.10, 0.12, 0.010, 0.600, 0.30],  # glass
        [0.28, 0.17, 0.004, 0.985, 0.25],  # metal
        [0.10, 0.12, 0.004, 0.930, 0.50],  # dark paint
        [0.24, 0.17, 0.004, 0.980, 0.35],  # middle paint
        [0.40, 0.19, 0.004, 0.995, 0.20],  # light paint
        [0.08, 0.06, 0.006, 0.950, 0.60],  # rubber
        [0.14, 0.10, 0.010, 0.980, 0.20],  # dark cloth
        [0.36, 0.14, 0.010, 0.995, 0.05],  # light cloth
        [0.34, 0.10, 0.006, 0.995, 0.02],  # skin
        [0.48, 0.25, 0.003, 0.995, 0.04],  # sign face
        [0.36, 0.16, 0.006, 0.850, 0.06],  # window of a house: curtains, shutters, frames
    ]
)

REMISSION = _TABLE[:, 0]
REMISSION_SPREAD = _TABLE[:, 1]
ROUGHNESS = _TABLE[:, 2]
RETURN_SHARE = _TABLE[:, 3]
DARK_SHARE = _TABLE[:, 4]

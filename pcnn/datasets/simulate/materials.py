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


# columns: mean remission, spread of one return, roughness [m], share of returns at normal incidence
_TABLE = np.array(
    [
        [0.24, 0.09, 0.004, 0.995],  # asphalt
        [0.42, 0.14, 0.004, 0.995],  # road paint
        [0.31, 0.09, 0.006, 0.995],  # paving
        [0.33, 0.10, 0.005, 0.995],  # concrete
        [0.28, 0.10, 0.020, 0.990],  # gravel
        [0.33, 0.11, 0.035, 0.985],  # grass
        [0.35, 0.13, 0.015, 0.980],  # leaf
        [0.31, 0.13, 0.012, 0.990],  # bark
        [0.33, 0.12, 0.006, 0.990],  # wood
        [0.36, 0.13, 0.006, 0.995],  # brick
        [0.44, 0.14, 0.004, 0.995],  # plaster
        [0.10, 0.12, 0.010, 0.450],  # glass
        [0.25, 0.16, 0.004, 0.970],  # metal
        [0.08, 0.10, 0.004, 0.850],  # dark paint
        [0.22, 0.17, 0.004, 0.950],  # middle paint
        [0.38, 0.19, 0.004, 0.985],  # light paint
        [0.06, 0.05, 0.006, 0.930],  # rubber
        [0.12, 0.10, 0.010, 0.960],  # dark cloth
        [0.32, 0.15, 0.010, 0.985],  # light cloth
        [0.30, 0.10, 0.006, 0.985],  # skin
        [0.50, 0.25, 0.003, 0.990],  # sign face
    ]
)

REMISSION = _TABLE[:, 0]
REMISSION_SPREAD = _TABLE[:, 1]
ROUGHNESS = _TABLE[:, 2]
RETURN_SHARE = _TABLE[:, 3]

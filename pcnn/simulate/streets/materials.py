"""What surfaces are: raw SemanticKITTI ids, and the light that they send back to the LiDAR.

Remission is a property of the material, not of the class: classes share materials, and the spreads
overlap, so the channel helps a network about as much as it does on real scans.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

#: raw semantic ids, as official `.label` files hold them
RAW_IDS = {
    "car": 10, "bicycle": 11, "bus": 13, "motorcycle": 15, "truck": 18, "other_vehicle": 20,
    "person": 30, "bicyclist": 31, "motorcyclist": 32, "road": 40, "parking": 44, "sidewalk": 48,
    "other_ground": 49, "building": 50, "fence": 51, "lane_marking": 60, "vegetation": 70,
    "trunk": 71, "terrain": 72, "pole": 80, "traffic_sign": 81,
}  # fmt: skip
#: the id of a thing that drives or walks, by the id of the same thing at rest
MOVING = {10: 252, 31: 253, 30: 254, 32: 255, 13: 257, 18: 258, 20: 259}

_ROWS = {
    # mean remission, spread of one return, roughness [m], share of returns at normal incidence,
    # share of returns that report 0, grain: share of the spread from return to return, not place
    # to place
    "asphalt": (0.32, 0.07, 0.003, 0.997, 0.06, 0.4),
    "road_paint": (0.50, 0.17, 0.004, 0.997, 0.01, 0.4),
    "paving": (0.37, 0.06, 0.003, 0.997, 0.04, 0.35),
    "concrete": (0.42, 0.09, 0.005, 0.997, 0.01, 0.35),
    "gravel": (0.34, 0.10, 0.006, 0.997, 0.02, 0.5),
    "grass": (0.41, 0.10, 0.022, 0.996, 0.02, 0.6),
    "leaf": (0.37, 0.14, 0.022, 0.994, 0.05, 0.7),
    "growth": (0.40, 0.12, 0.090, 0.994, 0.03, 0.7),  # knee-high, as if it were ground
    "bark": (0.37, 0.16, 0.018, 0.996, 0.07, 0.6),
    "wood": (0.36, 0.12, 0.014, 0.996, 0.03, 0.4),
    "brick": (0.43, 0.13, 0.006, 0.997, 0.01, 0.35),
    "plaster": (0.46, 0.15, 0.004, 0.997, 0.03, 0.3),
    "glass": (0.10, 0.12, 0.010, 0.600, 0.30, 0.3),
    "metal": (0.28, 0.17, 0.004, 0.985, 0.25, 0.5),
    "dark_paint": (0.12, 0.14, 0.004, 0.930, 0.42, 0.3),
    "mid_paint": (0.26, 0.18, 0.004, 0.980, 0.26, 0.3),
    "light_paint": (0.42, 0.19, 0.004, 0.995, 0.12, 0.3),
    "rubber": (0.14, 0.10, 0.006, 0.960, 0.35, 0.4),
    "dark_cloth": (0.24, 0.14, 0.010, 0.985, 0.12, 0.9),
    "light_cloth": (0.44, 0.16, 0.010, 0.995, 0.05, 0.9),
    "frame": (0.34, 0.22, 0.006, 0.985, 0.12, 0.7),  # of cycles
    "skin": (0.34, 0.10, 0.006, 0.995, 0.02, 0.8),
    "sign_face": (0.48, 0.25, 0.003, 0.995, 0.04, 0.35),
    "window": (0.36, 0.16, 0.006, 0.850, 0.06, 0.5),  # of a house: curtains, shutters, frames
}
#: number of every material, by its name
MATERIALS = {name: number for number, name in enumerate(_ROWS)}
#: [M] each, by material
REMISSION, REMISSION_SPREAD, ROUGHNESS, RETURN_SHARE, _DARK, GRAIN = np.array(
    list(_ROWS.values())
).T
#: [M] where a standard normal value is less, a return reports 0
DARK_BELOW = np.array([NormalDist().inv_cdf(share) for share in _DARK.tolist()])

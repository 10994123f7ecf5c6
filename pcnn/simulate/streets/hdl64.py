"""The spinning unit of 64 beams (Velodyne HDL-64E): beams, firings, and what the vehicle hides.

Source: the unit's manual for the two blocks of beams and their spacing; the height of the optical
centres, the rhythm of the firings and the hidden sectors were measured on published scans of the
KITTI recording vehicle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats

BEAMS = 64
REVOLUTION = 0.1  # [s] at 10 Hz

# two blocks of 32 beams: about a third of a degree apart above, half a degree apart below
ELEVATIONS: Floats = np.radians(
    np.concatenate([np.linspace(1.95, -8.6, 32), np.linspace(-9.0, -24.4, 32)])
)
#: [64] height of the optical centre above the origin of the sensor's frame [m]
HEIGHTS: Floats = np.concatenate([np.linspace(0.217, 0.200, 32), np.linspace(0.125, 0.045, 32)])

AZIMUTH_STEPS = 2171  # firings of a beam in one revolution

# sectors that parts of the vehicle hide: middle and half width of the azimuth [deg, left of
# ahead], and the elevation [deg] below which beams are lost
_HIDDEN = np.array(
    [
        [0.0, 17.0, -21.7],  # bonnet
        [180.0, 20.0, -18.7],  # tail
        [205.0, 5.0, -22.5],
        [164.0, 3.0, -13.5],  # posts of the rack on the roof
        [202.0, 3.0, -13.5],
        [135.0, 3.5, -20.8],
        [235.0, 3.5, -20.8],
        [295.0, 8.0, -16.8],  # aerial
        [0.0, 25.0, -23.0],
        [140.0, 16.0, -23.4],
        [228.0, 10.0, -23.4],
        [328.0, 8.0, -22.8],
    ]
)


def firing_azimuths() -> Floats:
    """Return the azimuths of one revolution [AZIMUTH_STEPS], 0 to 2 pi, counter-clockwise.

    Three firings in twenty follow their predecessor after half a step: the unit's packets hold 6
    or 7 firings of a block, and the angle is read between them.
    """
    step = np.ones(20)
    step[[6, 13, 19]] = 0.5
    steps = np.resize(step, AZIMUTH_STEPS)
    return np.asarray(2 * np.pi * (np.cumsum(steps) - steps[0]) / steps.sum())


def hidden(azimuth: Floats, elevation: Floats, shift: float) -> NDArray[np.bool_]:
    """Tell which beams end on the recording vehicle.

    Args:
        azimuth: [rad], any shape.
        elevation: [rad], same shape.
        shift: [rad] by which the sectors end lower; another vehicle.
    """
    turn, rise = np.degrees(azimuth), np.degrees(elevation + shift)
    lost = np.zeros(np.broadcast(turn, rise).shape, bool)
    for middle, half, below in _HIDDEN:
        off = np.abs((turn - middle + 180.0) % 360.0 - 180.0)
        # edges are rounded: the last degree of a sector begins a degree lower
        lost |= (off < half) & (rise < below - np.maximum(off - half + 1.0, 0.0))
    return lost

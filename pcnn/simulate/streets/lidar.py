"""The spinning LiDAR of 64 beams (Velodyne HDL-64E): rays, noise and lost returns.

Source: the unit's manual for the two blocks of beams and their spacing; the height of the optical
centres, the rhythm of the firings and the hidden sectors were measured on published scans of the
KITTI recording vehicle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats, Hits
from pcnn.simulate.streets.materials import (
    DARK_BELOW,
    GRAIN,
    REMISSION,
    REMISSION_SPREAD,
    RETURN_SHARE,
    ROUGHNESS,
)
from pcnn.simulate.streets.settings import SensorSettings

AZIMUTH_STEPS = 2171  # firings of a beam in one revolution
MIN_RANGE = 1.0  # [m] nearer returns belong to the vehicle itself

# two blocks of 32 beams: about a third of a degree apart above, half a degree apart below
ELEVATIONS: Floats = np.radians(
    np.concatenate([np.linspace(1.95, -8.6, 32), np.linspace(-9.0, -24.4, 32)])
)
#: [64] height of the optical centre above the origin of the sensor's frame [m]
HEIGHTS: Floats = np.concatenate([np.linspace(0.217, 0.200, 32), np.linspace(0.125, 0.045, 32)])

# sectors that parts of the vehicle hide: middle and half width of the azimuth [deg, left of
# ahead], and the elevation [deg] below which beams are lost
_HIDDEN = (
    (0.0, 17.0, -21.7), (0.0, 25.0, -23.0),  # bonnet
    (180.0, 20.0, -18.7),  # tail
    (164.0, 3.0, -13.5), (202.0, 3.0, -13.5),  # posts of the rack on the roof
    (295.0, 8.0, -16.8),  # aerial
)  # fmt: skip


def firing_azimuths() -> Floats:
    """The azimuths of one revolution [AZIMUTH_STEPS], 0 to 2 pi, counter-clockwise.

    Three firings in twenty follow their predecessor after half a step: the unit's packets hold 6
    or 7 firings of a block, and the angle is read between them.
    """
    step = np.ones(20)
    step[[6, 13, 19]] = 0.5
    steps = np.resize(step, AZIMUTH_STEPS)
    return np.asarray(2 * np.pi * (np.cumsum(steps) - steps[0]) / steps.sum())


def hidden(azimuth: Floats, elevation: Floats, shift: float) -> NDArray[np.bool_]:
    """Tell which beams end on the recording vehicle; its sectors end lower by `shift` [rad]."""
    turn, rise = np.degrees(azimuth), np.degrees(elevation + shift)
    lost = np.zeros(np.broadcast(turn, rise).shape, bool)
    for middle, half, below in _HIDDEN:
        off = np.abs((turn - middle + 180.0) % 360.0 - 180.0)
        # edges are rounded: the last degree of a sector begins a degree lower
        lost |= (off < half) & (rise < below - np.maximum(off - half + 1.0, 0.0))
    return lost


def patches(rng: np.random.Generator, points: Floats) -> Floats:
    """A standard normal value of every place [P], alike within patches of 0.2 to 4 m."""
    way, phase = rng.standard_normal((10, 3)), rng.uniform(0, 2 * np.pi, 10)
    length = np.geomspace(1.0, 16.0, 10)
    way *= 2 * np.pi / (length * np.linalg.norm(way, axis=1))[:, None]
    value = np.zeros(len(points))
    for (x, y, z), begin in zip(way, phase, strict=True):
        value += np.cos(points[:, 0] * x + points[:, 1] * y + points[:, 2] * z + begin)
    return value * np.sqrt(2 / len(way))


@dataclass(frozen=True, eq=False)
class Scan:
    """One revolution in the frame of the sensor: x forward, y left, z up."""

    points: NDArray[np.float32]  # [P, 4] x, y, z [m], remission 0..1
    labels: NDArray[np.uint32]  # [P] raw ids


@dataclass(frozen=True, eq=False)
class Firings:
    """The rays of one revolution in the frame of the sensor, ring after ring from the top down.

    R = B * AZIMUTH_STEPS of B beams; every ring goes counter-clockwise and begins ahead.
    """

    azimuth: Floats  # [R] [rad]
    elevation: Floats  # [R] [rad]
    origins: Floats  # [R, 3] optical centres [m]
    directions: Floats  # [R, 3] of unit length


def transformed(motion: Floats, points: Floats, directions: Floats) -> tuple[Floats, Floats]:
    """Move points [R, 3] and directions [R, 3] by a pose [4, 4]."""
    # not BLAS products, whose threads would wait for each other in every worker
    there = np.einsum("rc,wc->rw", points, motion[:3, :3]) + motion[:3, 3]
    return there, np.einsum("rc,wc->rw", directions, motion[:3, :3])


@dataclass(frozen=True, eq=False)
class Lidar:
    """One unit with its own small misalignments."""

    settings: SensorSettings
    elevations: Floats  # [B] [rad]
    azimuth_offsets: Floats  # [B] [rad]
    gains: Floats  # [B] on remission
    biases: Floats  # [B] of ranges [m]

    @staticmethod
    def draw(rng: np.random.Generator, settings: SensorSettings) -> Lidar:
        beams = len(ELEVATIONS)
        return Lidar(
            settings,
            ELEVATIONS + rng.normal(0, np.radians(settings.misalignment), beams),
            rng.normal(0, 8e-4, beams),
            rng.normal(1.0, 0.05, beams),
            rng.normal(0, settings.range_bias, beams),
        )

    def firings(self, rng: np.random.Generator) -> Firings:
        """The rays of one revolution, whose first firing lies anywhere in a step."""
        start = rng.uniform(0, 2 * np.pi / AZIMUTH_STEPS)
        azimuth = start + firing_azimuths() + self.azimuth_offsets[:, None]  # [B, A]
        # every ring begins ahead, as in the official files
        azimuth = np.sort(azimuth % (2 * np.pi), axis=1).reshape(-1)
        elevation, height = (np.repeat(each, AZIMUTH_STEPS) for each in (self.elevations, HEIGHTS))
        flat, zero = np.cos(elevation), np.zeros_like(height)
        directions = [flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)]
        origins = np.stack([zero, zero, height], axis=1)
        return Firings(azimuth, elevation, origins, np.stack(directions, axis=1))

    def measure(self, rng: np.random.Generator, firings: Firings, hits: Hits) -> Scan:
        """Turn first hits into the points that the sensor reports.

        A return is lost with the material's own share at normal incidence, more often far away and
        at grazing incidence, and always where the vehicle hides the beam. A range errs by the
        sensor's noise and by the roughness of the surface seen along the ray. Remission falls with
        incidence and distance, differs from place to place more than from return to return, and
        ends at zero where little light comes back.
        """
        rays = len(firings.azimuth)
        lost, noise, rough = rng.random(rays), *rng.standard_normal((2, rays))
        chosen, material, cosine = self.settings, hits.materials, hits.cosine
        reach = np.minimum(hits.distance / chosen.max_range, 1.0)
        share = RETURN_SHARE[material] * (1 - 0.12 * chosen.dropout * reach**2)
        share = share * (1 - np.minimum(chosen.dropout * 0.6, 1.0) * np.exp(-cosine / 0.02))
        seen = np.isfinite(hits.distance) & (lost < share * (1 - 0.004 * chosen.dropout))
        seen &= ~hidden(firings.azimuth, firings.elevation, np.radians(chosen.blind_shift))
        # a rough surface seen at a slant spreads the range by its height over the cosine
        roughness = chosen.roughness * ROUGHNESS[material]
        spread = roughness * rough / np.maximum(cosine, 0.06)
        distance = hits.distance + chosen.range_noise * noise + spread
        distance += np.repeat(self.biases, AZIMUTH_STEPS)
        seen &= (distance > MIN_RANGE) & (distance < chosen.max_range)

        ray = seen.nonzero()[0]
        points = firings.origins[ray] + firings.directions[ray] * distance[ray, None]
        material, gain = material[ray], self.gains[ray // AZIMUTH_STEPS]
        grain = GRAIN[material]
        shine, dark = (
            np.sqrt(1 - grain**2) * patches(rng, points) + grain * rng.standard_normal(len(ray))
            for _ in range(2)
        )
        # the unit compensates distance up to some 15 m
        far = np.exp(-((np.maximum(distance[ray] - 15.0, 0.0) / 45.0) ** 2))
        light = far * cosine[ray] / (cosine[ray] + 0.03)
        mean = REMISSION[material] * gain * chosen.remission_gain * light
        spread = REMISSION_SPREAD[material] * np.sqrt(light) * shine
        remission = np.clip(mean + spread - 0.10 * (1.0 - light), 0.0, 0.99)
        # dark and mirror-like surfaces send too little back to be told from nothing
        remission[dark < DARK_BELOW[material]] = 0.0
        # the files hold whole millimetres and hundredths
        values = np.concatenate([np.round(points, 3), np.round(remission, 2)[:, None]], axis=1)
        return Scan(values.astype(np.float32), hits.labels[ray].astype(np.uint32))

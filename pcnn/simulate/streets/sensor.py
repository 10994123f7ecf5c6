"""What a spinning LiDAR of 64 beams reports: rays of a moving sweep, noise and lost returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.materials import (
    DARK_SHARE,
    REMISSION,
    REMISSION_SPREAD,
    RETURN_SHARE,
    ROUGHNESS,
)
from pcnn.simulate.mesh import Floats
from pcnn.simulate.raycast import Hits
from pcnn.simulate.streets.hdl64 import (
    AZIMUTH_STEPS,
    BEAMS,
    ELEVATIONS,
    HEIGHTS,
    firing_azimuths,
    hidden,
)
from pcnn.simulate.streets.settings import SensorSettings
from pcnn.simulate.streets.sweep import Sweep

MIN_RANGE = 1.0  # [m] nearer returns belong to the vehicle itself


@dataclass(frozen=True, eq=False)
class Scan:
    """One revolution in the frame of the sensor: x forward, y left, z up."""

    points: NDArray[np.float32]  # [P, 4] x, y, z [m], remission 0..1
    labels: NDArray[np.uint32]  # [P] raw id | instance << 16


@dataclass(frozen=True, eq=False)
class Firings:
    """The rays of one revolution in the frame of the sensor at the moment of each firing.

    R = BEAMS * AZIMUTH_STEPS, ring after ring from the top beam down, counter-clockwise from ahead.
    """

    azimuth: Floats  # [R] [rad]
    elevation: Floats  # [R] [rad]
    origins: Floats  # [R, 3] optical centres [m]
    directions: Floats  # [R, 3] of unit length

    @property
    def phase(self) -> Floats:
        """[R] part of the revolution before (-0.5) and after (0.5) the beams look ahead."""
        return np.asarray((self.azimuth / (2 * np.pi) + 0.5) % 1.0 - 0.5)


@dataclass(frozen=True, eq=False)
class Sensor:
    """One unit with its own small misalignments."""

    settings: SensorSettings
    elevations: Floats  # [64] [rad]
    azimuth_offsets: Floats  # [64] [rad]
    gains: Floats  # [64] on remission
    biases: Floats  # [64] of ranges [m]

    @staticmethod
    def draw(rng: np.random.Generator, settings: SensorSettings) -> Sensor:
        """Draw a unit."""
        return Sensor(
            settings,
            ELEVATIONS + rng.normal(0, np.radians(settings.misalignment), BEAMS),
            rng.normal(0, 8e-4, BEAMS),
            rng.normal(1.0, 0.05, BEAMS),
            rng.normal(0, settings.range_bias, BEAMS),
        )

    def firings(self, rng: np.random.Generator) -> Firings:
        """Return the rays of one revolution, whose first firing lies anywhere in a step."""
        start = rng.uniform(0, 2 * np.pi / AZIMUTH_STEPS)
        azimuth = start + firing_azimuths() + self.azimuth_offsets[:, None]  # [64, A]
        # every ring begins ahead, as in the official files
        azimuth = np.sort(azimuth % (2 * np.pi), axis=1).reshape(-1)
        elevation = np.repeat(self.elevations, AZIMUTH_STEPS)
        flat = np.cos(elevation)
        directions = [flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)]
        origins = np.zeros((len(azimuth), 3))
        origins[:, 2] = np.repeat(HEIGHTS, AZIMUTH_STEPS)
        return Firings(azimuth, elevation, origins, np.stack(directions, axis=1))

    def measure(
        self, rng: np.random.Generator, firings: Firings, hits: Hits, sweep: Sweep | None = None
    ) -> Scan:
        """Turn first hits into what the sensor reports.

        A return is lost with the material's own share at normal incidence, more often far away and
        at grazing incidence, and always where the vehicle hides the beam. A range errs by the
        sensor's noise and by the roughness of the surface seen along the ray. Remission falls with
        incidence and distance, and ends at zero where little light comes back.

        Args:
            rng: noise; the number of draws does not depend on what was hit.
            firings: the rays.
            hits: what each ray met.
            sweep: how the sensor moved; the motion is taken out of the points as far as the
                settings say. None: it stood still.

        Returns:
            The returns in the order of the rays.
        """
        rays = len(firings.azimuth)
        lost, dark, noise, rough, shine = *rng.random((2, rays)), *rng.standard_normal((3, rays))
        chosen, material, cosine = self.settings, hits.materials, hits.cosine
        reach = np.minimum(hits.distance / chosen.max_range, 1.0)
        share = RETURN_SHARE[material] * (1 - 0.12 * chosen.dropout * reach**2)
        share = share * (1 - np.minimum(chosen.dropout * 0.6, 1.0) * np.exp(-cosine / 0.02))
        seen = np.isfinite(hits.distance) & (lost < share * (1 - 0.004 * chosen.dropout))
        seen &= ~hidden(firings.azimuth, firings.elevation, np.radians(chosen.blind_shift))
        # a rough surface seen at a slant spreads the range by its height over the cosine
        roughness = chosen.roughness * ROUGHNESS[material]
        spread = np.minimum(roughness / np.maximum(cosine, 0.05), 4 * roughness)
        distance = hits.distance + chosen.range_noise * noise + spread * rough
        distance += np.repeat(self.biases, AZIMUTH_STEPS)
        seen &= (distance > MIN_RANGE) & (distance < chosen.max_range)

        ray = seen.nonzero()[0]
        points = firings.origins[ray] + firings.directions[ray] * distance[ray, None]
        if sweep is not None:
            points = sweep.deskewed(points, firings.phase[ray], chosen.deskew)
        remission = self._remission(
            material[ray],
            cosine[ray],
            distance[ray],
            shine[ray],
            dark[ray],
            self.gains[ray // AZIMUTH_STEPS],
        )
        labels = hits.raw_ids.astype(np.uint32) | (hits.instances.astype(np.uint32) << 16)
        # the files hold whole millimetres and hundredths
        values = np.concatenate([np.round(points, 3), np.round(remission, 2)[:, None]], axis=1)
        return Scan(values.astype(np.float32), labels[ray])

    def _remission(
        self,
        material: NDArray[np.uint8],
        cosine: Floats,
        distance: Floats,
        shine: Floats,
        dark: Floats,
        gain: Floats,
    ) -> Floats:
        # light that comes back, against near and normal incidence; the unit compensates distance
        # up to some 15 m
        far = np.exp(-((np.maximum(distance - 15.0, 0.0) / 45.0) ** 2))
        light = far * cosine / (cosine + 0.03)
        mean = REMISSION[material] * gain * self.settings.remission_gain * light
        spread = REMISSION_SPREAD[material] * np.sqrt(light) * shine
        value = mean + spread - 0.10 * (1.0 - light)
        # dark and mirror-like surfaces send too little back to be told from nothing
        value = np.where(dark < DARK_SHARE[material], 0.0, value)
        return np.asarray(np.clip(value, 0.0, 0.99))

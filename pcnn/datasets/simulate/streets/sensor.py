"""A spinning LiDAR of 64 beams with noise and lost returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.simulate.materials import (
    REMISSION,
    REMISSION_SPREAD,
    RETURN_SHARE,
    ROUGHNESS,
)
from pcnn.datasets.simulate.mesh import Floats
from pcnn.datasets.simulate.raycast import Hits

AZIMUTH_STEPS = 2083  # one turn at 10 Hz, 0.1728 degrees each
MIN_RANGE = 1.5  # [m] nearer returns belong to the vehicle itself

# The two halves of the unit, as its data sheet has them: 32 beams a third of a degree apart, 32
# half a degree apart.
ELEVATIONS = np.radians(
    np.concatenate([np.linspace(2.0, -8.33, 32), np.linspace(-8.83, -24.8, 32)])
)


@dataclass(frozen=True, eq=False)
class Scan:
    """One revolution in the frame of the sensor: x forward, y left, z up."""

    points: NDArray[np.float32]  # [P, 4] x, y, z [m], remission 0..1
    labels: NDArray[np.uint32]  # [P] raw id | instance << 16


@dataclass(frozen=True, eq=False)
class Sensor:
    """One unit with its own small misalignments."""

    elevations: Floats  # [64] [rad]
    azimuth_offsets: Floats  # [64] [rad]
    range_noise: float  # [m]
    dropout: float
    remission_gain: float
    max_range: float  # [m]

    @staticmethod
    def draw(
        rng: np.random.Generator,
        range_noise: float,
        dropout: float,
        remission_gain: float,
        max_range: float,
    ) -> Sensor:
        """Draw a unit."""
        return Sensor(
            ELEVATIONS + rng.normal(0, 2e-4, 64),
            rng.normal(0, 8e-4, 64),
            range_noise,
            dropout,
            remission_gain,
            max_range,
        )

    def directions(self, rng: np.random.Generator) -> Floats:
        """Return unit vectors of a revolution [64 * AZIMUTH_STEPS, 3], from the top beam down."""
        start = rng.uniform(0, 2 * np.pi / AZIMUTH_STEPS)
        step = np.arange(AZIMUTH_STEPS) * (2 * np.pi / AZIMUTH_STEPS)
        azimuth = start + step + self.azimuth_offsets[:, None]  # [64, A]
        elevation = self.elevations[:, None]
        return np.stack(
            [
                np.cos(elevation) * np.cos(azimuth),
                np.cos(elevation) * np.sin(azimuth),
                np.broadcast_to(np.sin(elevation), azimuth.shape),
            ],
            axis=-1,
        ).reshape(-1, 3)

    def measure(self, rng: np.random.Generator, directions: Floats, hits: Hits) -> Scan:
        """Turn first hits into what the sensor reports.

        A return is lost with the material's own share at normal incidence, more often far away and
        at grazing incidence. A range errs by the sensor's noise and by the roughness of the surface
        seen along the ray.

        Args:
            rng: noise; the number of draws does not depend on what was hit.
            directions: [R, 3] unit vectors in the frame of the sensor.
            hits: what each ray met.

        Returns:
            The returns in the order of the rays.
        """
        rays = len(directions)
        lost, noise, rough, shine = rng.random(rays), *rng.standard_normal((3, rays))
        material, cosine = hits.materials, hits.cosine
        reach = np.minimum(hits.distance / self.max_range, 1.0)
        share = RETURN_SHARE[material]
        share = share * (1 - 0.20 * self.dropout * reach**2)
        share = share * (1 - np.minimum(self.dropout * 0.6, 1.0) * np.exp(-cosine / 0.02))
        seen = np.isfinite(hits.distance) & (lost < share)
        # a rough surface seen at a slant spreads the range by its height over the cosine
        spread = np.minimum(ROUGHNESS[material] / np.maximum(cosine, 0.05), 6 * ROUGHNESS[material])
        distance = hits.distance + self.range_noise * noise + spread * rough
        seen &= (distance > MIN_RANGE) & (distance < self.max_range)

        mean = REMISSION[material] * (0.65 + 0.35 * cosine) * (1 - 0.25 * reach)
        remission = self.remission_gain * (mean + REMISSION_SPREAD[material] * shine)
        # the unit reports hundredths
        remission = np.round(np.clip(remission, 0.0, 0.99), 2)
        points = np.concatenate(
            [directions[seen] * distance[seen, None], remission[seen, None]], axis=1
        ).astype(np.float32)
        labels = hits.raw_ids.astype(np.uint32) | (hits.instances.astype(np.uint32) << 16)
        return Scan(points, labels[seen])

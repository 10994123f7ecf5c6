"""A stretch of a street with its ray-casting structures, for a few scans."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from pcnn.simulate.mesh import Floats
from pcnn.simulate.raycast import Hits, RayCaster
from pcnn.simulate.streets.foliage import FoliageCaster
from pcnn.simulate.streets.hdl64 import REVOLUTION
from pcnn.simulate.streets.sensor import Scan
from pcnn.simulate.streets.street import VIEW, Street
from pcnn.simulate.streets.trajectory import FRAME_RATE

_SECTORS = 12  # of a revolution, in each of which what moves stands still


class View:
    """What is seen during some frames that lie near one another."""

    def __init__(self, street: Street, frames: list[int]) -> None:
        """Choose the stretch that the frames see."""
        self._street = street
        along = [street.drive.along(frame / FRAME_RATE) for frame in frames]
        self._span = min(along) - VIEW, max(along) + VIEW
        middle = (frames[0] + frames[-1]) / 2 / FRAME_RATE
        # float32 is finest near zero
        self._origin: Floats = np.asarray(street.drive.pose(middle)[:3, 3])

    @cached_property
    def _standing(self) -> RayCaster:
        mesh = self._street.standing(*self._span)
        return RayCaster(replace(mesh, triangles=mesh.triangles - self._origin))

    @cached_property
    def _foliage(self) -> FoliageCaster:
        return FoliageCaster(self._street.foliage(*self._span), self._origin)

    def scan(self, frame: int) -> Scan:
        """Take one scan: one revolution about the moment of the frame, looking ahead at it."""
        street, rng = self._street, self._street.scan_noise(frame)
        time = frame / FRAME_RATE
        sweep = street.drive.sweep(time)
        firings = street.sensor.firings(rng)
        phase = firings.phase
        origins = sweep.to_world(sweep.moved(firings.origins, phase))
        directions = sweep.rotated(sweep.turned(firings.directions, phase))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        hits = self._standing.cast(origins - self._origin, directions)
        hits = hits.nearer(self._moving(time, phase, origins, directions))
        hits = hits.nearer(self._foliage.cast(origins, directions, hits.distance))
        return street.sensor.measure(rng, firings, hits, sweep)

    def _moving(self, time: float, phase: Floats, origins: Floats, directions: Floats) -> Hits:
        """Meet what moves, as it stands in the middle of each sector of the revolution."""
        met = Hits.none(len(phase))
        sectors = np.clip(((phase + 0.5) * _SECTORS).astype(np.int64), 0, _SECTORS - 1)
        for number in range(_SECTORS):
            rows = np.flatnonzero(sectors == number)
            middle = (number + 0.5) / _SECTORS - 0.5
            sector = 2 * np.pi * middle, np.pi / _SECTORS
            mesh = self._street.moving(time + middle * REVOLUTION, sector)
            if not len(mesh):
                continue
            caster = RayCaster(replace(mesh, triangles=mesh.triangles - self._origin))
            met.put(rows, caster.cast(origins[rows] - self._origin, directions[rows]))
        return met

"""A street: everything that one sequence drives through, made on demand, and its scans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pcnn.simulate.mesh import Floats, Mesh, RayCaster, join
from pcnn.simulate.simulator import Split, draw
from pcnn.simulate.streets.drive import REVOLUTION, Drive, Road
from pcnn.simulate.streets.furnish import furnish
from pcnn.simulate.streets.ground import Ground, draw_relief
from pcnn.simulate.streets.layout import draw_block, draw_sides
from pcnn.simulate.streets.lidar import Lidar, Scan, transformed
from pcnn.simulate.streets.settings import (
    BLOCK_LENGTH,
    Course,
    SensorSettings,
    Style,
    draw_scene,
)
from pcnn.simulate.streets.site import Site
from pcnn.simulate.streets.traffic import Mover, block_traffic, convoy

VIEW = 85.0  # [m] a little more than the sensor's reach
_FIRST_BLOCK = -4  # no block before this one is ever seen, as drives begin at s = 0
_SECTORS = 13  # of a revolution, in each of which all that moves stands still; odd: one is ahead

# streams of random numbers of a sequence, so that no part's draws shift another's
_STREET, _BLOCK, _SCAN, _SENSOR = 0, 1, 2, 3


class Street:
    """The street of one sequence.

    Everything is a pure function of (seed, sequence, split, frame), up to the rounding of a scene
    in float32 about the middle of its frames.
    """

    def __init__(self, seed: int, sequence: int, split: Split) -> None:
        self._seed, self._split = (seed, sequence), split
        rng = self.stream(_STREET, 0)
        drawn = Course(**draw(rng, Course, split), scene=draw_scene(rng, split))
        kind = drawn.kind
        self.settings = course = replace(
            drawn,
            road_half_width=max(drawn.road_half_width * kind.wide, 6.0 * drawn.median),
            ego_speed=drawn.ego_speed * kind.speed,
            oncoming_speed=drawn.oncoming_speed * kind.speed,
        )
        self.road = Road.draw(rng, course)
        self._sides = draw_sides(rng, course)
        self._relief = draw_relief(rng, course.relief)
        self._convoy = convoy(rng, course)
        rng = self.stream(_SENSOR, 0)
        self.sensor_settings = SensorSettings(**draw(rng, SensorSettings, split))
        self.lidar = Lidar.draw(rng, self.sensor_settings)
        height, phases = self.sensor_settings.height, rng.uniform(0, 2 * np.pi, 4)
        self.drive = Drive(self.road, course.ego_speed, course.lane, height, phases)
        self._blocks: dict[int, tuple[Mesh, list[Mover]]] = {}

    def stream(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng([*self._seed, purpose, number])

    def _blocks_near(self, low: float, high: float) -> range:
        return range(int(low // BLOCK_LENGTH), int(high // BLOCK_LENGTH) + 1)

    def block(self, index: int) -> tuple[Mesh, list[Mover]]:
        """All that stands on a block, in street coordinates, and what moves there."""
        if index not in self._blocks:
            number = index - _FIRST_BLOCK
            rng, course = self.stream(_BLOCK, number), self.settings
            style = Style(**draw(rng, Style, self._split))
            plan = draw_block(rng, course, style, self._sides, index)
            kerb = course.kerb_height, course.rise, course.paved > 0.5
            ground = Ground(plan, self._relief, *kerb)
            site = Site(rng, course, style, plan, ground)
            furnish(site)
            movers = block_traffic(site)
            self._blocks[index] = join([ground.mesh(), *site.meshes]), movers
        return self._blocks[index]

    def standing(self, low: float, high: float) -> Mesh:
        mesh = join(self.block(index)[0] for index in self._blocks_near(low, high))
        return replace(mesh, triangles=self.road.bend(mesh.triangles))

    def moving(self, time: float) -> Mesh:
        """The things that move near the sensor at a time [s], in world coordinates."""
        here = self.drive.along(time)
        # vehicles of the convoy keep their distance ahead
        meshes = [one.mesh.moved(here + one.s, one.d) for one in self._convoy]
        for index in self._blocks_near(here - VIEW, here + VIEW):
            for mover in self.block(index)[1]:
                place = mover.place(time, mover.s / self.drive.speed)
                if abs(place[0] - here) < VIEW:
                    meshes.append(mover.mesh.moved(*place))
        mesh = join(meshes)
        return replace(mesh, triangles=self.road.bend(mesh.triangles))


class View:
    """A stretch of a street with its ray-casting structures, for frames near one another."""

    def __init__(self, street: Street, frames: Sequence[int]) -> None:
        self._street = street
        along = [street.drive.along(frame * REVOLUTION) for frame in frames]
        middle = (frames[0] + frames[-1]) / 2 * REVOLUTION
        # float32 is finest near zero
        self._origin: Floats = street.drive.pose(middle)[:3, 3]
        self._standing = self._caster(street.standing(min(along) - VIEW, max(along) + VIEW))

    def _caster(self, mesh: Mesh) -> RayCaster:
        return RayCaster(replace(mesh, triangles=mesh.triangles - self._origin))

    def scan(self, frame: int) -> Scan:
        """Take one scan: one revolution about the moment of the frame, looking ahead at it.

        The sensor and all else move from sector to sector; its own motion is taken out again.
        """
        street, rng = self._street, self._street.stream(_SCAN, frame)
        pose, firings = street.drive.pose(frame * REVOLUTION), street.lidar.firings(rng)
        there = pose - np.pad(self._origin[:, None], ((0, 1), (3, 0)))
        phase = (firings.azimuth / (2 * np.pi) + 0.5) % 1.0  # 0.5 ahead
        sectors = np.floor(phase * _SECTORS).astype(np.int64)
        rows = [np.flatnonzero(sectors == sector) for sector in range(_SECTORS)]
        turns = (np.arange(_SECTORS) + 0.5) / _SECTORS - 0.5
        times = ((frame + turns) * REVOLUTION).tolist()
        starts, rays = firings.origins, firings.directions
        for chosen, time in zip(rows, times, strict=True):
            motion = np.linalg.inv(pose) @ street.drive.pose(time)
            starts[chosen], rays[chosen] = transformed(motion, starts[chosen], rays[chosen])
        origins, directions = transformed(there, starts, rays)
        hits = self._standing.cast(origins, directions)
        for chosen, time in zip(rows, times, strict=True):
            movers = self._caster(street.moving(time))
            hits.put_nearer(chosen, movers.cast(origins[chosen], directions[chosen]))
        return street.lidar.measure(rng, firings, hits)

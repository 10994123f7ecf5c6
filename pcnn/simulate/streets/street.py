"""A street: everything that one sequence drives through, made on demand, and its scans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats, Hits, Mesh, RayCaster, join
from pcnn.simulate.simulator import Split, draw
from pcnn.simulate.streets.drive import REVOLUTION, Drive, Road
from pcnn.simulate.streets.ground import Ground, Relief
from pcnn.simulate.streets.layout import Block, draw_block, draw_sides
from pcnn.simulate.streets.lidar import HDL64, Lidar, Scan, draw_head
from pcnn.simulate.streets.plants import Foliage, FoliageCaster, join_foliage
from pcnn.simulate.streets.plots import build_plots
from pcnn.simulate.streets.roadside import furnish_junction, furnish_roadside, park_vehicles
from pcnn.simulate.streets.settings import (
    ANY_HEIGHT,
    BLOCK_LENGTH,
    DISTRICT_BLOCKS,
    Course,
    Sensors,
    SensorSettings,
    StreetSettings,
)
from pcnn.simulate.streets.site import INSTANCES_PER_BLOCK, Site
from pcnn.simulate.streets.traffic import Mover, Place, block_traffic, convoy

VIEW = 85.0  # [m] a little more than the sensor's reach
_FIRST_BLOCK = -4  # no block before this one is ever seen, as drives begin at s = 0
_CONVOY_INSTANCES = 16  # ids 1..15 belong to the convoy
_SECTORS = 12  # of a revolution, in each of which moving things stand still

# streams of random numbers of a sequence, so that no part's draws shift another's
_STREET, _BLOCK, _SCAN, _SENSOR, _DISTRICT, _HEAD = 0, 1, 2, 3, 4, 5


@dataclass(frozen=True, eq=False)
class BuiltBlock:
    """A block with everything on it, in street coordinates."""

    plan: Block
    standing: Mesh
    foliage: Foliage
    movers: list[Mover]


class Street:
    """The street of one sequence.

    Everything is a pure function of (seed, sequence, split, frame), up to the rounding of a scene
    in float32 about the middle of its frames.
    """

    def __init__(self, seed: int, sequence: int, split: Split, sensors: Sensors = "hdl64") -> None:
        self._seed = (seed, sequence)
        self._split: Split = split
        rng = self._stream(_STREET, 0)
        self.settings = course = Course(**draw(rng, Course, split))
        self.road = Road.draw(rng, course.bend, course.hill, course.crown, course.camber)
        self._sides = draw_sides(rng, course)
        self._relief = Relief.draw(rng, course.relief, (course.bank_left, course.bank_right))
        self._convoy = convoy(rng, course, first_instance=1)
        rng = self._stream(_SENSOR, 0)
        self.sensor_settings = SensorSettings(**draw(rng, SensorSettings, split))
        head = HDL64
        if sensors == "any":
            other = self._stream(_HEAD, 0)
            head = draw_head(other)
            height = other.uniform(*ANY_HEIGHT)
            self.sensor_settings = replace(self.sensor_settings, height=height)
        self.lidar = Lidar.draw(rng, self.sensor_settings, head)
        height, phases = self.sensor_settings.height, rng.uniform(0, 2 * np.pi, 4)
        self.drive = Drive(self.road, course.ego_speed, course.lane, height, phases)
        self._blocks: dict[int, BuiltBlock] = {}

    def _stream(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng([*self._seed, purpose, number])

    def _blocks_near(self, low: float, high: float) -> range:
        return range(int(low // BLOCK_LENGTH), int(high // BLOCK_LENGTH) + 1)

    def district(self, index: int) -> tuple[int, StreetSettings]:
        number = (index - _FIRST_BLOCK) // DISTRICT_BLOCKS
        rng = self._stream(_DISTRICT, number)
        own = draw(rng, StreetSettings, self._split)
        return number, StreetSettings(**vars(self.settings), **own)

    def districts(self, low: float, high: float) -> dict[int, StreetSettings]:
        return dict(self.district(index) for index in self._blocks_near(low - VIEW, high + VIEW))

    def block(self, index: int) -> BuiltBlock:
        if index not in self._blocks:
            number = index - _FIRST_BLOCK
            first = _CONVOY_INSTANCES + number * INSTANCES_PER_BLOCK
            if first + INSTANCES_PER_BLOCK > 0xFFFF:
                raise ValueError(
                    f"the drive reaches s = {index * BLOCK_LENGTH:.0f} m, but "
                    "instance ids of 16 bits end at about 20 km: "
                    "ask for fewer scans or a smaller frame stride"
                )
            rng, settings = self._stream(_BLOCK, number), self.district(index)[1]
            plan = draw_block(rng, settings, self._sides, index)
            ground = Ground(plan, self._relief, settings.kerb_height)
            site = Site(rng, settings, plan, ground, first)
            furnish_roadside(site)
            furnish_junction(site)
            on_the_road = park_vehicles(site)
            build_plots(site)
            movers = block_traffic(site, on_the_road)
            standing = join([ground.mesh(), *site.meshes])
            self._blocks[index] = BuiltBlock(plan, standing, join_foliage(site.foliage), movers)
        return self._blocks[index]

    def standing(self, low: float, high: float) -> Mesh:
        mesh = join(self.block(index).standing for index in self._blocks_near(low, high))
        return replace(mesh, triangles=self.road.bend(mesh.triangles))

    def foliage(self, low: float, high: float) -> Foliage:
        blocks = self._blocks_near(low, high)
        return join_foliage(self.block(index).foliage for index in blocks).bent(self.road)

    def moving(self, time: float, sector: tuple[float, float] | None = None) -> Mesh:
        """Return the things that move near the sensor at a time [s], in world coordinates."""
        here = self.drive.along(time)
        # vehicles of the convoy keep their distance ahead
        found: list[tuple[Mover, Place]] = [
            (one, (here + one.s, one.d, one.ground, 0.0)) for one in self._convoy
        ]
        for index in self._blocks_near(here - VIEW, here + VIEW):
            for mover in self.block(index).movers:
                found.append((mover, mover.place(time, mover.s / self.drive.speed)))
        if sector is not None and found:
            places = np.array([place[:3] for _, place in found])
            radii = np.array([mover.radius for mover, _ in found])
            seen = self._in_sector(time, places, radii, *sector)
            found = [item for item, kept in zip(found, seen, strict=True) if kept]
        mesh = join(mover.mesh.moved(*place) for mover, place in found)
        return replace(mesh, triangles=self.road.bend(mesh.triangles))

    def _in_sector(
        self, time: float, places: Floats, radii: Floats, middle: float, half: float
    ) -> NDArray[np.bool_]:
        """Tell which circles of street coordinates [M, 3] may reach into a sector of azimuths."""
        pose = self.drive.pose(time)
        x, y = np.einsum("mw,wc->mc", self.road.bend(places) - pose[:3, 3], pose[:3, :3]).T[:2]
        distance = np.hypot(x, y)
        width = np.arcsin(np.minimum(radii / np.maximum(distance, 1e-6), 1.0))
        off = np.abs((np.arctan2(y, x) - middle + np.pi) % (2 * np.pi) - np.pi)
        near = (distance < radii + 1.0) | (off < half + width + 0.05)
        return np.asarray(near & (distance < VIEW + radii))

    def scan_noise(self, frame: int) -> np.random.Generator:
        return self._stream(_SCAN, frame)


class View:
    """A stretch of a street with its ray-casting structures, for frames near one another."""

    def __init__(self, street: Street, frames: Sequence[int]) -> None:
        self._street = street
        along = [street.drive.along(frame * REVOLUTION) for frame in frames]
        self._span = min(along) - VIEW, max(along) + VIEW
        middle = (frames[0] + frames[-1]) / 2 * REVOLUTION
        # float32 is finest near zero
        self._origin: Floats = street.drive.pose(middle)[:3, 3]

    def _caster(self, mesh: Mesh) -> RayCaster:
        return RayCaster(replace(mesh, triangles=mesh.triangles - self._origin))

    @cached_property
    def _standing(self) -> RayCaster:
        return self._caster(self._street.standing(*self._span))

    @cached_property
    def _foliage(self) -> FoliageCaster:
        return FoliageCaster(self._street.foliage(*self._span), self._origin)

    def scan(self, frame: int) -> Scan:
        """Take one scan: one revolution about the moment of the frame, looking ahead at it."""
        street, rng = self._street, self._street.scan_noise(frame)
        time = frame * REVOLUTION
        sweep = street.drive.sweep(time)
        firings = street.lidar.firings(rng)
        phase = firings.phase
        origins = sweep.to_world(sweep.moved(firings.origins, phase))
        directions = sweep.rotated(sweep.turned(firings.directions, phase))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        hits = self._standing.cast(origins - self._origin, directions)
        hits = hits.nearer(self._moving(time, phase, origins, directions))
        hits = hits.nearer(self._foliage.cast(origins, directions, hits.distance))
        return street.lidar.measure(rng, firings, hits, sweep)

    def _moving(self, time: float, phase: Floats, origins: Floats, directions: Floats) -> Hits:
        met = Hits.none(len(phase))
        sectors = np.clip(((phase + 0.5) * _SECTORS).astype(np.int64), 0, _SECTORS - 1)
        for number in range(_SECTORS):
            rows = np.flatnonzero(sectors == number)
            middle = (number + 0.5) / _SECTORS - 0.5
            sector = 2 * np.pi * middle, np.pi / _SECTORS
            mesh = self._street.moving(time + middle * REVOLUTION, sector)
            if len(mesh):
                caster = self._caster(mesh)
                met.put(rows, caster.cast(origins[rows] - self._origin, directions[rows]))
        return met

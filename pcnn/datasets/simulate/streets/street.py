"""A street: everything that one sequence drives through, made block by block on demand."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from pcnn.datasets.simulate.mesh import Floats, Mesh, join
from pcnn.datasets.simulate.raycast import Hits, RayCaster
from pcnn.datasets.simulate.streets.ground import Relief, ground_mesh
from pcnn.datasets.simulate.streets.layout import Block, draw_block, draw_sides
from pcnn.datasets.simulate.streets.parked import park_vehicles
from pcnn.datasets.simulate.streets.plots import build_plots
from pcnn.datasets.simulate.streets.road import Road
from pcnn.datasets.simulate.streets.roadside import furnish_roadside
from pcnn.datasets.simulate.streets.sensor import Scan, Sensor
from pcnn.datasets.simulate.streets.settings import (
    BLOCK_LENGTH,
    Split,
    StreetSettings,
    draw_settings,
)
from pcnn.datasets.simulate.streets.site import INSTANCES_PER_BLOCK, Site
from pcnn.datasets.simulate.streets.traffic import Mover, block_traffic, convoy
from pcnn.datasets.simulate.streets.trajectory import FRAME_RATE, Drive

_VIEW = 85.0  # [m] a little more than the sensor's reach
_FIRST_BLOCK = -4  # no block before this one is ever seen, as drives begin at s = 0
_CONVOY_INSTANCES = 16  # ids 1..15 belong to the convoy

# streams of random numbers of a sequence, so that no part's draws shift another's
_STREET, _BLOCK, _SCAN = 0, 1, 2


class Street:
    """The street of one sequence.

    Everything is a pure function of (seed, sequence, split, frame), up to the rounding of a scene
    in float32 about the middle of its frames.
    """

    def __init__(self, seed: int, sequence: int, split: Split) -> None:
        """Draw the settings, the course and the cross-section.

        Args:
            seed: of the whole set.
            sequence: number of the sequence.
            split: whose ranges the settings are drawn from.
        """
        self._seed = (seed, sequence)
        rng = self._stream(_STREET, 0)
        self.settings: StreetSettings = draw_settings(rng, split)
        settings = self.settings
        self.road = Road.draw(rng, settings.bend, settings.hill)
        self.drive = Drive.draw(
            rng, self.road, settings.ego_speed, settings.lane, settings.sensor_height
        )
        self._sides = draw_sides(rng, settings)
        self._relief = Relief.draw(rng, settings.relief)
        self._sensor = Sensor.draw(
            rng, settings.range_noise, settings.dropout, settings.remission_gain, settings.max_range
        )
        self._convoy = convoy(rng, settings, first_instance=1)
        self._blocks: dict[int, tuple[Block, Mesh, list[Mover]]] = {}

    def _stream(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng([*self._seed, purpose, number])

    def _blocks_near(self, low: float, high: float) -> range:
        return range(int(low // BLOCK_LENGTH), int(high // BLOCK_LENGTH) + 1)

    def block(self, index: int) -> tuple[Block, Mesh, list[Mover]]:
        """Return the plan, the standing mesh (street coordinates) and the movers of a block.

        Raises:
            ValueError: the drive is so long that instance ids no longer fit 16 bits.
        """
        if index not in self._blocks:
            number = index - _FIRST_BLOCK
            first = _CONVOY_INSTANCES + number * INSTANCES_PER_BLOCK
            if first + INSTANCES_PER_BLOCK > 0xFFFF:
                raise ValueError(
                    f"the drive reaches s = {index * BLOCK_LENGTH:.0f} m, but "
                    "instance ids of 16 bits end at about 20 km: "
                    "ask for fewer scans or a smaller frame stride"
                )
            rng = self._stream(_BLOCK, number)
            plan = draw_block(rng, self.settings, self._sides, index)
            site = Site(rng, self.settings, plan, self._relief, first)
            furnish_roadside(site)
            homeless = park_vehicles(site)
            build_plots(site)
            movers = block_traffic(site, homeless)
            ground = ground_mesh(plan, self._relief, self.settings.kerb_height)
            self._blocks[index] = plan, join([ground, *site.meshes]), movers
        return self._blocks[index]

    def view(self, frames: list[int]) -> View:
        """Build what is seen during some frames that lie near one another."""
        return View(self, frames)

    def standing(self, low: float, high: float) -> Mesh:
        """Return everything at rest between s = low and s = high, in world coordinates."""
        mesh = join(self.block(index)[1] for index in self._blocks_near(low, high))
        return replace(mesh, triangles=self.road.bend(mesh.triangles))

    def moving(self, time: float) -> Mesh:
        """Return everything that moves near the sensor at a time [s], in world coordinates."""
        here = self.drive.along(time)
        parts = []
        for index in self._blocks_near(here - _VIEW, here + _VIEW):
            for mover in self.block(index)[2]:
                parts.append(mover.at(time, self.drive.meeting_time(mover.s)))
        for ahead, mover in self._convoy:
            parts.append(mover.mesh.moved(here + ahead, mover.d))
        mesh = join(parts)
        return replace(mesh, triangles=self.road.bend(mesh.triangles))

    def scan_noise(self, frame: int) -> np.random.Generator:
        """Return the random stream of one revolution."""
        return self._stream(_SCAN, frame)

    @property
    def sensor(self) -> Sensor:
        """The unit on the roof."""
        return self._sensor


class View:
    """A stretch of a street with its ray-casting structure, for a few scans."""

    def __init__(self, street: Street, frames: list[int]) -> None:
        """Choose the stretch that the frames see."""
        self._street = street
        self._frames = frames

    @cached_property
    def _origin(self) -> Floats:
        # float32 is finest near zero
        middle = (self._frames[0] + self._frames[-1]) / 2 / FRAME_RATE
        return np.asarray(self._street.drive.pose(middle)[:3, 3])

    @cached_property
    def _standing(self) -> RayCaster:
        along = [self._street.drive.along(frame / FRAME_RATE) for frame in self._frames]
        mesh = self._street.standing(min(along) - _VIEW, max(along) + _VIEW)
        return RayCaster(replace(mesh, triangles=mesh.triangles - self._origin))

    def scan(self, frame: int) -> Scan:
        """Take one scan."""
        street, rng = self._street, self._street.scan_noise(frame)
        time = frame / FRAME_RATE
        pose = street.drive.pose(time)
        local = street.sensor.directions(rng)
        # not a BLAS product, whose threads would wait for each other in every worker
        world = np.einsum("rc,wc->rw", local, pose[:3, :3])
        origin = pose[:3, 3] - self._origin
        moving = street.moving(time)
        hits: Hits = self._standing.cast(origin, world).nearer(
            RayCaster(replace(moving, triangles=moving.triangles - self._origin)).cast(
                origin, world
            )
        )
        return street.sensor.measure(rng, local, hits)

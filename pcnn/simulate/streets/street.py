"""A street: everything that one sequence drives through, made block by block on demand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.mesh import Floats, Mesh, join
from pcnn.simulate.streets.foliage import Foliage, join_foliage
from pcnn.simulate.streets.ground import Relief, ground_mesh
from pcnn.simulate.streets.junctions import furnish_junction
from pcnn.simulate.streets.layout import Block, draw_block, draw_sides
from pcnn.simulate.streets.parked import park_vehicles
from pcnn.simulate.streets.plots import build_plots
from pcnn.simulate.streets.road import Road
from pcnn.simulate.streets.roadside import furnish_roadside
from pcnn.simulate.streets.sensor import Sensor
from pcnn.simulate.streets.settings import (
    BLOCK_LENGTH,
    DISTRICT_BLOCKS,
    SensorSettings,
    Split,
    StreetSettings,
    draw_district,
    draw_sensor_settings,
    draw_settings,
)
from pcnn.simulate.streets.site import INSTANCES_PER_BLOCK, Site
from pcnn.simulate.streets.traffic import Arrival, Mover, block_traffic, convoy
from pcnn.simulate.streets.trajectory import Drive

VIEW = 85.0  # [m] a little more than the sensor's reach
_FIRST_BLOCK = -4  # no block before this one is ever seen, as drives begin at s = 0
_CONVOY_INSTANCES = 16  # ids 1..15 belong to the convoy

# streams of random numbers of a sequence, so that no part's draws shift another's
_STREET, _BLOCK, _SCAN, _SENSOR, _DISTRICT = 0, 1, 2, 3, 4


@dataclass(frozen=True, eq=False)
class BuiltBlock:
    """A block with everything on it, in street coordinates."""

    plan: Block
    standing: Mesh
    foliage: Foliage
    movers: list[Mover | Arrival]


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
        self._split: Split = split
        rng = self._stream(_STREET, 0)
        self.settings: StreetSettings = draw_settings(rng, split)
        settings = self.settings
        self.road = Road.draw(rng, settings.bend, settings.hill, settings.crown, settings.camber)
        self._sides = draw_sides(rng, settings)
        self._relief = Relief.draw(rng, settings.relief, (settings.bank_left, settings.bank_right))
        self._convoy = convoy(rng, settings, first_instance=1)
        rng = self._stream(_SENSOR, 0)
        self.sensor_settings: SensorSettings = draw_sensor_settings(rng, split)
        self.sensor = Sensor.draw(rng, self.sensor_settings)
        self.drive = Drive.draw(
            rng, self.road, settings.ego_speed, settings.lane, self.sensor_settings.height
        )
        self._blocks: dict[int, BuiltBlock] = {}

    def _stream(self, purpose: int, number: int) -> np.random.Generator:
        return np.random.default_rng([*self._seed, purpose, number])

    def _blocks_near(self, low: float, high: float) -> range:
        return range(int(low // BLOCK_LENGTH), int(high // BLOCK_LENGTH) + 1)

    def district(self, index: int) -> tuple[int, StreetSettings]:
        """Return the number of a block's district and its settings."""
        number = (index - _FIRST_BLOCK) // DISTRICT_BLOCKS
        rng = self._stream(_DISTRICT, number)
        return number, draw_district(rng, self._split, self.settings)

    def districts(self, low: float, high: float) -> dict[int, StreetSettings]:
        """Return the settings of every district seen between s = low and s = high."""
        return dict(self.district(index) for index in self._blocks_near(low - VIEW, high + VIEW))

    def block(self, index: int) -> BuiltBlock:
        """Return a block.

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
            rng, settings = self._stream(_BLOCK, number), self.district(index)[1]
            plan = draw_block(rng, settings, self._sides, index)
            site = Site(rng, settings, plan, self._relief, first)
            furnish_roadside(site)
            furnish_junction(site)
            homeless = park_vehicles(site)
            build_plots(site)
            movers = block_traffic(site, homeless)
            ground = ground_mesh(plan, self._relief, settings.kerb_height)
            self._blocks[index] = BuiltBlock(
                plan, join([ground, *site.meshes]), join_foliage(site.foliage), movers
            )
        return self._blocks[index]

    def standing(self, low: float, high: float) -> Mesh:
        """Return everything solid at rest between s = low and s = high, in world coordinates."""
        mesh = join(self.block(index).standing for index in self._blocks_near(low, high))
        return replace(mesh, triangles=self.road.bend(mesh.triangles))

    def foliage(self, low: float, high: float) -> Foliage:
        """Return the leaves between s = low and s = high, in world coordinates."""
        blocks = self._blocks_near(low, high)
        return join_foliage(self.block(index).foliage for index in blocks).bent(self.road)

    def moving(self, time: float, sector: tuple[float, float] | None = None) -> Mesh:
        """Return what moves near the sensor at a time [s], in world coordinates.

        Args:
            time: the moment.
            sector: middle and half width [rad] of azimuths in the sensor's frame; what certainly
                lies outside it is left out.
        """
        here = self.drive.along(time)
        found = []
        for index in self._blocks_near(here - VIEW, here + VIEW):
            for mover in self.block(index).movers:
                found.append((mover, mover.place(time, self.drive.meeting_time(mover.s))))
        for ahead, leader in self._convoy:
            found.append((leader, (here + ahead, leader.d, leader.ground, 0.0)))
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
        """Return the random stream of one revolution."""
        return self._stream(_SCAN, frame)

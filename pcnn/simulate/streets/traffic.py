"""Things that move: oncoming vehicles, vehicles ahead and behind, cyclists, people on foot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets.ground import Ground
from pcnn.simulate.streets.layout import WIDTH
from pcnn.simulate.streets.settings import Course
from pcnn.simulate.streets.site import Site, footprint, make

Place = tuple[float, float, float, float]  # s, d, z [m], yaw [rad]


@dataclass(frozen=True, eq=False)
class Mover:
    """A thing that moves along the street and meets the sensor's vehicle at `s`, whenever."""

    mesh: Mesh  # with moving-* ids, facing +x, at the origin
    s: float  # [m] where it meets the sensor's vehicle
    d: float  # [m] its lane, or where it comes to rest
    speed: float  # [m/s]; negative if it is oncoming
    ground: float = 0.0  # [m] height of its lane

    @cached_property
    def radius(self) -> float:
        """Of the circle about the origin that holds the mesh, seen from above [m]."""
        return float(np.linalg.norm(self.mesh.triangles[..., :2], axis=-1).max())

    def place(self, time: float, meeting_time: float) -> Place:
        """Return where in street coordinates it stands at a time [s]."""
        yaw = 0.0 if self.speed >= 0 else math.pi
        return self.s + self.speed * (time - meeting_time), self.d, self.ground, yaw


@dataclass(frozen=True, eq=False)
class Arrival(Mover):
    """A vehicle that comes down a side street and stops at its end as the sensor's one passes."""

    land: Ground | None = None  # that the side street lies on

    def place(self, time: float, meeting_time: float) -> Place:
        assert self.land is not None
        way = self.speed * max(meeting_time - time, 0.0)
        d = self.d + math.copysign(way, self.d)
        z = float(self.land.height([self.s], [min(max(d, -WIDTH), WIDTH)])[0])
        return self.s, d, z, math.copysign(math.pi / 2, -self.d)


def block_traffic(site: Site, wanted: list[str]) -> list[Mover]:
    rng, settings, block = site.rng, site.settings, site.block
    movers: list[Mover] = []
    # one speed a lane keeps the vehicles of a lane apart for ever
    for offset in (10.0, 30.0):
        kinds = ["car", "motorcyclist", "truck", "bus", ""]
        kind = str(rng.choice(kinds, p=[0.38, 0.24, 0.09, 0.09, 0.2]))
        if wanted:
            kind = wanted.pop()
        if kind:
            s = block.s0 + offset + rng.uniform(-3, 3)
            movers.append(Mover(site.thing(kind, True), s, settings.lane, -settings.oncoming_speed))
    for way in (1.0, -1.0):
        if site.happens(settings.presence):
            d, s = -way * (settings.road_half_width - 0.40), block.s0 + rng.uniform(5, 35)
            cyclist = site.thing("bicyclist", True)
            movers.append(Mover(cyclist, s, d, way * settings.cyclist_speed))
    for _ in range(int(rng.poisson(settings.person_count * 0.6)) + 1):
        side = block.sides[int(rng.integers(2))]
        speed = math.copysign(rng.uniform(0.9, 1.6), rng.uniform(-1, 1))
        # the outer half of the sidewalk is kept free of furniture
        d, s = side.sign * (side.edge - rng.uniform(0.45, 0.75)), rng.uniform(block.s0, block.s1)
        walker = site.thing("walker", True)
        movers.append(Mover(walker, s, d, speed, ground=settings.kerb_height))
    movers.extend(_arrivals(site))
    return movers


def _arrivals(site: Site) -> list[Arrival]:
    rng, arrivals = site.rng, []
    for side in site.block.sides:
        crossing = site.block.arm(side)
        if crossing is None or not site.happens(0.4):
            continue
        kinds = ["car", "truck", "motorcyclist", "bicyclist"]
        mesh = site.thing(str(rng.choice(kinds, p=[0.6, 0.1, 0.15, 0.15])), moving=True)
        length, width = footprint(mesh)
        # behind the stopping line and a rider who waits there, in the lane on the right
        stop = side.sign * (side.edge + 2.5 + length / 2)
        lane = crossing.s - side.sign * max(crossing.half - width / 2 - 0.3, 0.3)
        arrivals.append(Arrival(mesh, lane, stop, rng.uniform(4.0, 8.0), land=site.ground))
    return arrivals


def convoy(rng: np.random.Generator, course: Course, first_instance: int) -> list[Mover]:
    members: list[tuple[float, str]] = []
    large = ["car", "truck", "bus"]
    # the rarest class of all rides along with every drive, before or behind
    ahead = rng.random() < 0.7
    if ahead:
        members.append((rng.uniform(8, 13), "motorcyclist"))
    if rng.random() < 0.7:
        members.append((rng.uniform(24, 34), str(rng.choice(large))))
    if rng.random() < 0.7:
        members.append((-rng.uniform(13, 20), str(rng.choice(large))))
    if not ahead or rng.random() < 0.3:
        members.append((-rng.uniform(7, 9), "motorcyclist"))
    return [
        Mover(make(rng, kind, first_instance + n, moving=True), s, -course.lane, course.ego_speed)
        for n, (s, kind) in enumerate(members)
    ]

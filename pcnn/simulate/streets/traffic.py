"""Things that move: oncoming vehicles, vehicles ahead and behind, cyclists, people on foot."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets import vehicles
from pcnn.simulate.streets.cycles import bicyclist, motorcyclist
from pcnn.simulate.streets.layout import WIDTH
from pcnn.simulate.streets.people import person
from pcnn.simulate.streets.raw_ids import MOVING, RawId
from pcnn.simulate.streets.settings import StreetSettings
from pcnn.simulate.streets.site import Site

Place = tuple[float, float, float, float]  # s, d, z [m], yaw [rad]


@dataclass(frozen=True, eq=False)
class Mover:
    """A thing on a lane that reaches `s` at the moment when the sensor's vehicle does: they meet.

    So every drive meets what its blocks were given, however long it takes to get there.
    """

    mesh: Mesh  # with moving-* ids, facing the direction of travel along +s, at the origin
    s: float  # [m] where it meets the sensor's vehicle
    d: float  # [m] its lane
    speed: float  # [m/s] along s, negative for oncoming ones
    ground: float  # [m] height of what it moves on

    @cached_property
    def radius(self) -> float:
        """Of the circle about the origin that holds the mesh, seen from above [m]."""
        return _radius(self.mesh)

    def place(self, time: float, meeting_time: float) -> Place:
        """Return where in street coordinates it stands at a time [s]."""
        yaw = 0.0 if self.speed >= 0 else math.pi
        return self.s + self.speed * (time - meeting_time), self.d, self.ground, yaw


@dataclass(frozen=True, eq=False)
class Arrival:
    """A vehicle that comes down a side street and stops at its end as the sensor's one passes."""

    mesh: Mesh  # with moving-* ids, facing +x, at the origin
    s: float  # [m] its lane, along the street
    stop: float  # [m] distance across the street where its middle comes to rest
    speed: float  # [m/s]
    ground: Callable[[float], float]  # height [m] of the side street at a distance across

    @cached_property
    def radius(self) -> float:
        """Of the circle about the origin that holds the mesh, seen from above [m]."""
        return _radius(self.mesh)

    def place(self, time: float, meeting_time: float) -> Place:
        """Return where in street coordinates it stands at a time [s]."""
        way = self.speed * max(meeting_time - time, 0.0)
        d = self.stop + math.copysign(way, self.stop)
        yaw = math.copysign(math.pi / 2, -self.stop)
        return self.s, d, self.ground(min(max(d, -WIDTH), WIDTH)), yaw


def _radius(mesh: Mesh) -> float:
    return float(np.linalg.norm(mesh.triangles[..., :2], axis=-1).max())


_MAKERS: dict[str, tuple[Callable[[np.random.Generator], Mesh], RawId]] = {
    "car": (vehicles.car, RawId.CAR),
    "truck": (vehicles.truck, RawId.TRUCK),
    "bus": (vehicles.bus, RawId.BUS),
    "bicyclist": (bicyclist, RawId.BICYCLIST),
    "motorcyclist": (motorcyclist, RawId.MOTORCYCLIST),
}


def _mover(site: Site, kind: str, s: float, d: float, speed: float) -> Mover:
    make, raw_id = _MAKERS[kind]
    mesh = make(site.rng).labelled(MOVING[raw_id], site.new_instance())
    return Mover(mesh, s, d, speed, ground=0.0)


def block_traffic(site: Site, wanted: list[str]) -> list[Mover | Arrival]:
    """Draw what the sensor's vehicle meets in a block.

    Args:
        site: the block.
        wanted: kinds of vehicles that must be among the oncoming ones, as far as there is room.
    """
    rng, settings, block = site.rng, site.settings, site.block
    movers: list[Mover | Arrival] = []
    # one speed a lane keeps the vehicles of a lane apart for ever
    for offset in (10.0, 30.0):
        kinds = ["car", "motorcyclist", "truck", "bus", ""]
        kind = str(rng.choice(kinds, p=[0.38, 0.24, 0.09, 0.09, 0.2]))
        if wanted:
            kind = wanted.pop()
        if kind:
            s = block.s0 + offset + float(rng.uniform(-3, 3))
            movers.append(_mover(site, kind, s, settings.lane, -settings.oncoming_speed))
    for direction in (1.0, -1.0):
        if site.happens(settings.presence):
            d = -direction * (settings.road_half_width - 0.40)
            s = block.s0 + float(rng.uniform(5, 35))
            movers.append(_mover(site, "bicyclist", s, d, direction * settings.cyclist_speed))
    for _ in range(int(rng.poisson(settings.person_count * 0.6)) + 1):
        side = block.sides[int(rng.integers(2))]
        speed = math.copysign(float(rng.uniform(0.9, 1.6)), float(rng.uniform(-1, 1)))
        s = float(rng.uniform(block.s0, block.s1))
        mesh = person(rng, True).labelled(MOVING[RawId.PERSON], site.new_instance())
        # the outer half of the sidewalk is kept free of furniture
        d = side.sign * (side.edge - float(rng.uniform(0.45, 0.75)))
        movers.append(Mover(mesh, s, d, speed, ground=settings.kerb_height))
    movers.extend(_arrivals(site))
    return movers


def _arrivals(site: Site) -> list[Arrival]:
    rng, crossing = site.rng, site.block.crossing
    arrivals = []
    for side in site.block.sides:
        if crossing is None or not crossing.has_arm(side) or not site.happens(0.4):
            continue
        kind = str(
            rng.choice(["car", "truck", "motorcyclist", "bicyclist"], p=[0.6, 0.1, 0.15, 0.15])
        )
        make, raw_id = _MAKERS[kind]
        mesh = make(rng).labelled(MOVING[raw_id], site.new_instance())
        length, width = vehicles.footprint(mesh)
        # behind the stopping line and whoever waits there, in the lane on the right
        stop = side.sign * (side.edge + 2.5 + float(length) / 2)
        s = crossing.s - side.sign * max(crossing.half - float(width) / 2 - 0.3, 0.3)
        lane = s

        def ground(d: float, lane: float = lane) -> float:
            return site.ground(lane, d)

        arrivals.append(Arrival(mesh, s, stop, float(rng.uniform(4.0, 8.0)), ground))
    return arrivals


def convoy(
    rng: np.random.Generator, settings: StreetSettings, first_instance: int
) -> list[tuple[float, Mover]]:
    """Draw the vehicles that drive before and behind the sensor's vehicle.

    Returns:
        Distance ahead [m] and mover; its `s` is zero.
    """
    members: list[tuple[float, str]] = []
    # the rarest class of all rides along with every drive, before or behind
    ahead = bool(rng.random() < 0.7)
    if ahead:
        members.append((float(rng.uniform(8, 13)), "motorcyclist"))
    if rng.random() < 0.7:
        members.append((float(rng.uniform(24, 34)), str(rng.choice(["car", "truck", "bus"]))))
    if rng.random() < 0.7:
        members.append((-float(rng.uniform(13, 20)), str(rng.choice(["car", "truck", "bus"]))))
    if not ahead or rng.random() < 0.3:
        members.append((-float(rng.uniform(7, 9)), "motorcyclist"))
    result = []
    for number, (distance, kind) in enumerate(members):
        make, raw_id = _MAKERS[kind]
        mesh = make(rng).labelled(MOVING[raw_id], first_instance + number)
        result.append((distance, Mover(mesh, 0.0, -settings.lane, settings.ego_speed, ground=0.0)))
    return result

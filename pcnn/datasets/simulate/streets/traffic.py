"""Things that move: oncoming vehicles, vehicles ahead and behind, cyclists, people on foot."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pcnn.datasets.simulate.mesh import Mesh
from pcnn.datasets.simulate.streets import vehicles
from pcnn.datasets.simulate.streets.cycles import bicyclist, motorcyclist
from pcnn.datasets.simulate.streets.people import person
from pcnn.datasets.simulate.streets.raw_ids import MOVING, RawId
from pcnn.datasets.simulate.streets.settings import StreetSettings
from pcnn.datasets.simulate.streets.site import Site


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

    def at(self, time: float, meeting_time: float) -> Mesh:
        """Return the mesh in street coordinates at a time [s]."""
        yaw = 0.0 if self.speed >= 0 else math.pi
        s = self.s + self.speed * (time - meeting_time)
        return self.mesh.moved(s, self.d, self.ground, yaw)


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


def block_traffic(site: Site, wanted: list[str]) -> list[Mover]:
    """Draw what the sensor's vehicle meets in a block.

    Args:
        site: the block.
        wanted: kinds of vehicles that must be among the oncoming ones, as far as there is room.
    """
    rng, settings, block = site.rng, site.settings, site.block
    movers = []
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
    return movers


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

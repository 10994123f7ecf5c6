"""Things that move: oncoming vehicles, vehicles ahead and behind, cyclists, people on foot."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pcnn.simulate.mesh import Mesh
from pcnn.simulate.streets.materials import MOVING
from pcnn.simulate.streets.settings import Course
from pcnn.simulate.streets.site import Site, make

Place = tuple[float, float, float, float]  # s, d, z [m], yaw [rad]


@dataclass(frozen=True, eq=False)
class Mover:
    """A thing that moves along the street and meets the sensor's vehicle at `s`, whenever."""

    mesh: Mesh  # with moving-* ids, facing +x, at the origin
    s: float  # [m] where it meets the sensor's vehicle
    d: float  # [m] its lane
    speed: float  # [m/s]; negative if it is oncoming
    ground: float = 0.0  # [m] height of its lane

    def place(self, time: float, meeting_time: float) -> Place:
        """Where in street coordinates it stands at a time [s]."""
        yaw = 0.0 if self.speed >= 0 else math.pi
        return self.s + self.speed * (time - meeting_time), self.d, self.ground, yaw


def moving(rng: np.random.Generator, name: str) -> Mesh:
    """Make a thing that says of itself that it moves."""
    mesh = make(rng, name)
    return replace(
        mesh, labels=np.array([MOVING[label] for label in mesh.labels.tolist()], np.uint16)
    )


def block_traffic(site: Site) -> list[Mover]:
    rng, course, block = site.rng, site.course, site.block
    movers: list[Mover] = []
    # one speed a lane keeps the vehicles of a lane apart for ever
    for offset in (10.0, 30.0):
        kinds = ["car", "motorcyclist", "truck", "bus", ""]
        kind = str(rng.choice(kinds, p=[0.36, 0.22, 0.12, 0.12, 0.18]))
        if kind:
            s = block.s0 + offset + rng.uniform(-3, 3)
            movers.append(Mover(moving(rng, kind), s, course.lane, -course.oncoming_speed))
    for way in (1.0, -1.0):
        if site.happens(site.style.presence):
            d, s = -way * (course.road_half_width - 0.40), block.s0 + rng.uniform(5, 35)
            movers.append(Mover(moving(rng, "bicyclist"), s, d, way * course.cyclist_speed))
    for _ in range(int(rng.poisson(site.style.person_count * 0.6)) + 1):
        side = block.sides[int(rng.integers(2))]
        speed = math.copysign(rng.uniform(0.9, 1.6), rng.uniform(-1, 1))
        # the outer half of the sidewalk is kept free of furniture
        d, s = side.sign * (side.edge - rng.uniform(0.45, 0.75)), rng.uniform(block.s0, block.s1)
        movers.append(Mover(moving(rng, "walker"), s, d, speed, course.kerb_height))
    return movers


def convoy(rng: np.random.Generator, course: Course) -> list[Mover]:
    """Vehicles at fixed distances of the sensor's own: the rarest class of all is one of them."""
    large = [str(name) for name in rng.choice(["car", "truck", "bus"], 2)]
    members = [
        (rng.uniform(8, 13), "motorcyclist", 0.7),
        (rng.uniform(24, 34), large[0], 0.7),
        (-rng.uniform(13, 20), large[1], 0.7),
        (-rng.uniform(7, 9), "motorcyclist", 0.5),
    ]
    return [
        Mover(moving(rng, kind), s, -course.lane, course.ego_speed)
        for s, kind, share in members
        if rng.random() < share
    ]

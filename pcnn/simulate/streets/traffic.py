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
        kinds = ["car", "motorcyclist", "truck", "other_vehicle", ""]
        kind = str(rng.choice(kinds, p=[0.50, 0.11, 0.08, 0.07, 0.24]))
        if kind:
            s = block.s0 + offset + rng.uniform(-3, 3)
            movers.append(Mover(moving(rng, kind), s, course.lane, -course.oncoming_speed))
    if course.median:  # the outer lanes
        for way, speed in ((1.0, -0.9 * course.oncoming_speed), (-1.0, 0.9 * course.ego_speed)):
            kind = str(rng.choice(["car", "truck", ""], p=[0.5, 0.1, 0.4]))
            if kind:
                d, s = way * 0.78 * course.road_half_width, block.s0 + rng.uniform(6, 34)
                movers.append(Mover(moving(rng, kind), s, d, speed))
    people = course.kind.people
    for way in (1.0, -1.0):
        if site.happens(site.style.presence * people):
            d, s = -way * (course.road_half_width - 0.40), block.s0 + rng.uniform(5, 35)
            movers.append(Mover(moving(rng, "bicyclist"), s, d, way * course.cyclist_speed))
    for _ in range(int(rng.poisson(site.style.person_count * 0.6 * people)) + int(people)):
        side = block.sides[int(rng.integers(2))]
        speed = math.copysign(rng.uniform(0.9, 1.6), rng.uniform(-1, 1))
        # the outer half of the sidewalk is kept free of furniture; without one, beside the road
        away = side.edge - rng.uniform(0.45, 0.75) if side.has_walk else side.kerb - 0.4
        s, ground = rng.uniform(block.s0, block.s1), course.kerb_height if side.has_walk else 0.0
        ground += course.rise * max(away - side.kerb, 0.0)
        kind = "bicyclist" if side.has_walk and site.happens(0.15) else "walker"
        for number in range(1 + int(kind == "walker" and site.happens(0.35))):
            here = s + rng.uniform(-0.3, 0.3), side.sign * (away - 0.65 * number)
            movers.append(Mover(moving(rng, kind), *here, speed, ground))
    return movers


def convoy(rng: np.random.Generator, course: Course) -> list[Mover]:
    """Vehicles at fixed distances of the sensor's own: the rarest class of all is one of them."""
    large = [str(name) for name in rng.choice(["car", "car", "truck", "other_vehicle"], 2)]
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

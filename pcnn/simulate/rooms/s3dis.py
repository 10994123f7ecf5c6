"""A set of simulated, labelled rooms in the files of S3DIS."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.s3dis import AREAS, TEST_AREAS
from pcnn.datasets.s3dis_labels import CLASS_NAMES
from pcnn.files.whole_file import whole_file
from pcnn.ranges import Count, Seed, Spacing
from pcnn.simulate.mesh import rotation_z
from pcnn.simulate.rooms.furnish import build_room
from pcnn.simulate.rooms.room import TYPES
from pcnn.simulate.rooms.scanner import RoomCloud, scan_room
from pcnn.simulate.simulator import SetPlan, Simulator, Split, Task

_LINE = "%.3f %.3f %.3f %d %d %d\n"
_LINES_AT_ONCE = 50_000


@dataclass(frozen=True)
class RoomJob:
    """One room of a set."""

    seed: int
    area: int
    index: int  # in its area
    room_type: str
    number: int  # of its type in its area, from 1
    spacing: float

    @property
    def name(self) -> str:
        return f"{self.room_type}_{self.number}"

    def stream(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.area, self.index, purpose])

    @property
    def angle(self) -> int:
        return int(self.stream(2).choice([0, 90, 180, 270]))


def plan_rooms(*, seed: Seed = 0, rooms: Count = 6, spacing: Spacing = 0.02) -> SetPlan[RoomJob]:
    """Plan simulated rooms in the formats of S3DIS.

    Six areas hold `rooms` rooms of the 11 types, coloured and labelled with the 13 classes; those
    of Area_5, on which the usual split tests, have shifted settings.
    """
    jobs = [job for area in AREAS for job in plan_area(seed, area, rooms, spacing)]
    tasks = [Task(f"Area_{job.area}-{job.name}", job) for job in jobs]
    return SetPlan(tasks, do_room, partial(_finish, jobs), unit="room")


def plan_area(seed: int, area: int, rooms: int, spacing: float) -> list[RoomJob]:
    """Draw the types of an area's rooms and number them; the first rooms do not depend on how many.

    Every other room takes the types in turn, the others follow the types' shares.
    """
    rng = np.random.default_rng([seed, area, 1])
    types = list(TYPES)
    shares = np.array([TYPES[name]["share"] for name in types], np.float64)
    jobs, numbers = [], Counter[str]()
    for index in range(rooms):
        drawn = types[int(rng.choice(len(types), p=shares / shares.sum()))]
        room_type = types[(index // 2 * 6 + area) % 11] if index % 2 == 0 else drawn
        numbers[room_type] += 1
        jobs.append(RoomJob(seed, area, index, room_type, numbers[room_type], spacing))
    return jobs


def do_room(folder: Path, job: RoomJob) -> dict[str, Any]:
    """Build, scan and write one room; return its points by class, objects and settings."""
    rng = job.stream(3)
    split: Split = "test" if job.area in TEST_AREAS else "train"
    room = build_room(rng, job.room_type, split)
    cloud = scan_room(rng, room, job.spacing)
    place = np.array([20.0 * (job.index % 5) - 40.0, 20.0 * (job.index // 5), 0.0])
    points = cloud.points @ np.rint(rotation_z(np.radians(job.angle))).T + place
    objects = _objects(cloud)
    table = np.concatenate([points, cloud.colours], axis=1)
    own = folder / f"Area_{job.area}" / job.name
    parts = [(own / "Annotations" / f"{label}.txt", rows) for label, rows in objects]
    parts.append((own / f"{job.name}.txt", np.concatenate([rows for _, rows in objects])))
    for path, rows in parts:
        with whole_file(path) as file:
            for start in range(0, len(rows), _LINES_AT_ONCE):
                part = table[rows[start : start + _LINES_AT_ONCE]]
                file.write((_LINE * len(part) % tuple(part.reshape(-1))).encode())
    held = np.bincount(cloud.labels, minlength=len(CLASS_NAMES))
    return {
        "points": len(points),
        "points_by_class": {n: int(c) for n, c in zip(CLASS_NAMES, held, strict=True) if c},
        "objects": len(objects),
        "angle": job.angle,
        "settings": asdict(room.settings),
    }


def _objects(cloud: RoomCloud) -> list[tuple[str, NDArray[np.int64]]]:
    """The name CLASS_N and the rows of every object."""
    order = np.lexsort((cloud.instances, cloud.labels))
    bounds = np.flatnonzero(np.diff(cloud.instances[order])) + 1
    objects, counts = [], Counter[str]()
    for rows in np.split(order, bounds):
        name = CLASS_NAMES[cloud.labels[rows[0]]]
        counts[name] += 1
        objects.append((f"{name}_{counts[name]}", np.sort(rows)))
    return objects


def _finish(
    jobs: list[RoomJob], folder: Path, results: dict[str, dict[str, Any]], workers: int
) -> dict[str, Any]:
    """Describe every room."""
    areas: dict[str, dict[str, Any]] = {}
    for job in jobs:
        described = results[f"Area_{job.area}-{job.name}"]
        areas.setdefault(f"Area_{job.area}", {})[job.name] = described
    return {"areas": areas}


S3DIS = Simulator("s3dis", "5", plan_rooms)

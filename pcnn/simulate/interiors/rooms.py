"""A set of simulated, labelled rooms in the formats of S3DIS."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Interval

from pcnn.ranges import Count, Seed, Workers
from pcnn.simulate.driver import SetPlan, Task, write_set
from pcnn.simulate.interiors.classes import CLASS_NAMES, ROOM_TYPES
from pcnn.simulate.interiors.room import build_room
from pcnn.simulate.interiors.s3dis_files import (
    write_alignment,
    write_array_room,
    write_text_room,
)
from pcnn.simulate.interiors.scanner import scan_room
from pcnn.simulate.interiors.version import VERSION

Layout = Literal["text", "arrays"]

AREAS = (1, 2, 3, 4, 5, 6)
_TEST_AREA = 5  # the usual split tests on it: its rooms have shifted settings

# rooms of each type in a hundred; rare types are more frequent than in the real buildings, so that
# small sets hold every type
_SHARES = {
    "office": 34,
    "hallway": 16,
    "conferenceRoom": 10,
    "storage": 8,
    "WC": 6,
    "lounge": 6,
    "lobby": 5,
    "pantry": 5,
    "copyRoom": 4,
    "openspace": 4,
    "auditorium": 2,
}


@dataclass(frozen=True)
class RoomJob:
    """One room of a set."""

    seed: int
    area: int
    index: int  # in its area
    room_type: str
    name: str  # type_n
    spacing: float
    layout: Layout

    def stream(self) -> np.random.Generator:
        """Return the random stream of the room."""
        return np.random.default_rng([self.seed, self.area, self.index, 3])


def simulate_rooms(
    root: str | Path,
    *,
    seed: Seed = 0,
    rooms: Count = 6,
    spacing: Annotated[float, Interval(ge=0.002, le=0.5)] = 0.02,
    layout: Layout = "text",
    workers: Workers | None = None,
    progress: bool = True,
) -> Path:
    """Write simulated rooms in the formats of S3DIS.

    Six areas hold rooms of the 11 types, coloured and labelled with the 13 classes; those of
    Area_5, on which the usual split tests, have shifted settings. Equal arguments and an equal
    `VERSION` give equal bytes on a machine, whatever `workers` is; interrupted, the same call goes
    on where it stopped.

    Args:
        root: the folder to write; it will hold Area_1 to Area_6.
        seed: of all randomness, at least 0.
        rooms: in every area, at least 1.
        spacing: distance of points [m]; real rooms have about 0.01.
        layout: `text` as in Stanford3dDataset_v1.2, `arrays` as Pointcept preprocesses it.
        workers: processes; None takes every core, 1 works in this one. More than one need the
            usual `if __name__ == "__main__":` in a script.
        progress: show a progress bar on a terminal, two lines elsewhere.

    Returns:
        The root, as an absolute path.

    Raises:
        ValueError: a count, spacing, layout or seed that makes no sense.
        FileExistsError: the root holds something else than the set asked for.
    """
    if rooms < 1 or seed < 0 or not 0.002 <= spacing <= 0.5:
        raise ValueError(
            f"rooms={rooms}, seed={seed}, spacing={spacing}: give at least 1 room, a seed of at "
            "least 0 and a spacing of 0.002 to 0.5 m"
        )
    if layout not in ("text", "arrays"):
        raise ValueError(f"layout {layout!r} is unknown; use 'text' or 'arrays'")
    request = {
        "format": "s3dis" if layout == "text" else "s3dis_arrays",
        "version": VERSION,
        "seed": seed,
        "rooms": rooms,
        "spacing": spacing,
    }
    jobs = [job for area in AREAS for job in _plan_area(seed, area, rooms, spacing, layout)]
    plan = SetPlan(
        request,
        [Task(f"Area_{job.area}-{job.name}", job) for job in jobs],
        prepare=partial(_prepare, jobs),
        do=do_room,
        finish=partial(_record, jobs),
        unit="room",
    )
    return write_set(root, plan, workers=workers, progress=progress)


def _plan_area(seed: int, area: int, rooms: int, spacing: float, layout: Layout) -> list[RoomJob]:
    """Draw the types of an area's rooms and number them; the first rooms do not depend on how many.

    Every eleven areas' first rooms and so on go through all types; the others follow the shares.
    """
    rng = np.random.default_rng([seed, area, 1])
    shares = np.array([_SHARES[t] for t in ROOM_TYPES], np.float64)
    jobs, numbers = [], Counter[str]()
    for index in range(rooms):
        drawn = ROOM_TYPES[int(rng.choice(len(ROOM_TYPES), p=shares / shares.sum()))]
        # every other room takes the types in turn
        room_type = ROOM_TYPES[(index // 2 * 6 + area) % 11] if index % 2 == 0 else drawn
        numbers[room_type] += 1
        name = f"{room_type}_{numbers[room_type]}"
        jobs.append(RoomJob(seed, area, index, room_type, name, spacing, layout))
    return jobs


def _angle(job: RoomJob) -> int:
    """Return by how many degrees a room is turned in its building."""
    return int(np.random.default_rng([job.seed, job.area, job.index, 2]).choice([0, 90, 180, 270]))


def _prepare(jobs: list[RoomJob], folder: Path) -> None:
    for area in AREAS:
        angles = {job.name: _angle(job) for job in jobs if job.area == area}
        write_alignment(folder / f"Area_{area}", angles)


def do_room(folder: Path, job: RoomJob) -> dict[str, Any]:
    """Build, scan and write one room; return its points by class, objects and settings."""
    rng = job.stream()
    room = build_room(rng, job.room_type, "test" if job.area == _TEST_AREA else "train")
    cloud = scan_room(rng, room, job.spacing)
    turn = np.radians(_angle(job))
    c, s = np.rint([np.cos(turn), np.sin(turn)])
    place = np.array([20.0 * (job.index % 5) - 40.0, 20.0 * (job.index // 5), 0.0])
    points = cloud.points.astype(np.float64) @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]) + place
    write = write_text_room if job.layout == "text" else write_array_room
    objects = write(folder / f"Area_{job.area}", job.name, cloud, points)
    held = np.bincount(cloud.labels, minlength=len(CLASS_NAMES))
    return {
        "points": len(points),
        "points_by_class": {n: int(c) for n, c in zip(CLASS_NAMES, held, strict=True) if c},
        "objects": objects,
        "settings": asdict(room.settings),
    }


def _record(
    jobs: list[RoomJob], folder: Path, results: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Describe every room: type, points by class, objects, settings."""
    areas: dict[str, dict[str, Any]] = {}
    for job in jobs:
        described = results[f"Area_{job.area}-{job.name}"]
        areas.setdefault(f"Area_{job.area}", {})[job.name] = described
    return {"areas": areas}

"""A set of simulated, labelled rooms in the files of S3DIS, as text or as Pointcept's arrays."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from pcnn.datasets.s3dis.classes import AREAS, CLASS_NAMES, ROOM_TYPES, TEST_AREAS
from pcnn.datasets.s3dis.files import RoomArrays, write_array_room
from pcnn.files.whole_file import whole_file
from pcnn.ranges import Count, Seed, Workers
from pcnn.simulate.mesh import Floats, rotation_z
from pcnn.simulate.rooms.room import build_room
from pcnn.simulate.rooms.scanner import RoomCloud, scan_room
from pcnn.simulate.rooms.settings import TYPES
from pcnn.simulate.simulator import SetPlan, Simulator, Split, Task, write_set

#: changes whenever the same seed would give other bytes
VERSION = "4"

Layout = Literal["text", "arrays"]

_LINE = "%.3f %.3f %.3f %d %d %d\n"
_LINES_AT_ONCE = 50_000


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

    def stream(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.area, self.index, purpose])

    @property
    def angle(self) -> int:
        return int(self.stream(2).choice([0, 90, 180, 270]))


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
    `VERSION` give equal bytes on a machine, for any `workers`; interrupted, the same call goes
    on where it stopped.
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
    jobs = [job for area in AREAS for job in plan_area(seed, area, rooms, spacing, layout)]
    plan = SetPlan(
        request,
        [Task(f"Area_{job.area}-{job.name}", job) for job in jobs],
        prepare=partial(_write_alignments, jobs),
        do=do_room,
        finish=partial(_record, jobs),
        unit="room",
    )
    return write_set(root, plan, workers=workers, progress=progress)


def plan_area(seed: int, area: int, rooms: int, spacing: float, layout: Layout) -> list[RoomJob]:
    """Draw the types of an area's rooms and number them; the first rooms do not depend on how many.

    Every other room takes the types in turn, the others follow the types' shares.
    """
    rng = np.random.default_rng([seed, area, 1])
    shares = np.array([TYPES[name]["share"] for name in ROOM_TYPES], np.float64)
    jobs, numbers = [], Counter[str]()
    for index in range(rooms):
        drawn = ROOM_TYPES[int(rng.choice(len(ROOM_TYPES), p=shares / shares.sum()))]
        room_type = ROOM_TYPES[(index // 2 * 6 + area) % 11] if index % 2 == 0 else drawn
        numbers[room_type] += 1
        name = f"{room_type}_{numbers[room_type]}"
        jobs.append(RoomJob(seed, area, index, room_type, name, spacing, layout))
    return jobs


def do_room(folder: Path, job: RoomJob) -> dict[str, Any]:
    """Build, scan and write one room; return its points by class, objects and settings."""
    rng = job.stream(3)
    split: Split = "test" if job.area in TEST_AREAS else "train"
    room = build_room(rng, job.room_type, split, lived_in=True)
    cloud = scan_room(rng, room, job.spacing)
    place = np.array([20.0 * (job.index % 5) - 40.0, 20.0 * (job.index // 5), 0.0])
    turn = np.rint(rotation_z(np.radians(job.angle)))
    points = cloud.points.astype(np.float64) @ turn.T + place
    write = _write_text if job.layout == "text" else _write_arrays
    objects = write(folder / f"Area_{job.area}" / job.name, cloud, points)
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


def _write_alignments(jobs: list[RoomJob], folder: Path) -> None:
    """Write AREA/AREA_alignmentAngle.txt: degrees by which each room is turned in the building."""
    for area in (f"Area_{number}" for number in AREAS):
        angles = {job.name: job.angle for job in jobs if f"Area_{job.area}" == area}
        lines = [
            f"## Global alignment angle per disjoint space in {area} ##",
            "## Disjoint Space Name Global Alignment Angle ##",
            *(f"{name} {angle}" for name, angle in sorted(angles.items())),
        ]
        with whole_file(folder / area / f"{area}_alignmentAngle.txt") as file:
            file.write(("\n".join(lines) + "\n").encode())


def _objects(cloud: RoomCloud) -> list[tuple[str, NDArray[np.int64]]]:
    order = np.lexsort((cloud.instances, cloud.labels))
    bounds = np.flatnonzero(np.diff(cloud.instances[order])) + 1
    objects, counts = [], Counter[str]()
    for rows in np.split(order, bounds):
        name = CLASS_NAMES[cloud.labels[rows[0]]]
        counts[name] += 1
        objects.append((f"{name}_{counts[name]}", np.sort(rows)))
    return objects


def _write_text(folder: Path, cloud: RoomCloud, points: Floats) -> int:
    """Write ROOM/ROOM.txt and ROOM/Annotations/CLASS_N.txt; return the number of objects."""
    objects = _objects(cloud)
    table = np.concatenate([points, cloud.colours], axis=1)
    parts = [(folder / "Annotations" / f"{label}.txt", rows) for label, rows in objects]
    parts.append((folder / f"{folder.name}.txt", np.concatenate([rows for _, rows in objects])))
    for path, rows in parts:
        with whole_file(path) as file:
            for start in range(0, len(rows), _LINES_AT_ONCE):
                part = table[rows[start : start + _LINES_AT_ONCE]]
                file.write((_LINE * len(part) % tuple(part.reshape(-1))).encode())
    return len(objects)


def _write_arrays(folder: Path, cloud: RoomCloud, points: Floats) -> int:
    """Write ROOM/{coord,color,segment,instance}.npy; return the number of objects."""
    objects = _objects(cloud)
    rows = np.concatenate([rows for _, rows in objects])
    number = np.repeat(np.arange(len(objects)), [len(rows) for _, rows in objects])
    room = RoomArrays(
        points[rows].astype(np.float32),
        cloud.colours[rows],
        cloud.labels[rows],
        number.astype(np.int16),
    )
    write_array_room(folder, room)
    return len(objects)


S3DIS = Simulator("s3dis", VERSION, simulate_rooms)

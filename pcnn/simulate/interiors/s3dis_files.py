"""The files of S3DIS: the text of Stanford3dDataset_v1.2, or Pointcept's arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcnn.files.whole_file import whole_file
from pcnn.simulate.interiors.classes import CLASS_NAMES
from pcnn.simulate.interiors.scanner import RoomCloud
from pcnn.simulate.mesh import Floats

_LINE = "%.3f %.3f %.3f %d %d %d\n"
_LINES_AT_ONCE = 50_000


def _write_points(path: Path, points: Floats, colours: NDArray[np.uint8]) -> None:
    """Write lines `x y z r g b`: metres with three digits, colours 0..255."""
    table = np.concatenate([points, colours], axis=1)
    with whole_file(path) as file:
        for start in range(0, len(table), _LINES_AT_ONCE):
            part = table[start : start + _LINES_AT_ONCE]
            file.write((_LINE * len(part) % tuple(part.reshape(-1))).encode())


def _objects(cloud: RoomCloud) -> list[tuple[str, NDArray[np.int64]]]:
    """Return the objects of a room as (class_n, rows), sorted by class, n from 1 in each class."""
    order = np.lexsort((cloud.instances, cloud.labels))
    bounds = np.flatnonzero(np.diff(cloud.instances[order])) + 1
    objects, counts = [], np.zeros(len(CLASS_NAMES), np.int64)
    for rows in np.split(order, bounds):
        label = int(cloud.labels[rows[0]])
        counts[label] += 1
        objects.append((f"{CLASS_NAMES[label]}_{counts[label]}", np.sort(rows)))
    return objects


def write_text_room(area: Path, name: str, cloud: RoomCloud, points: Floats) -> int:
    """Write ROOM/ROOM.txt and ROOM/Annotations/CLASS_N.txt, as Stanford3dDataset_v1.2 has them.

    Args:
        area: folder of the area.
        name: of the room, type_n.
        cloud: colours, labels and objects.
        points: [N, 3] metres, in the building.

    Returns:
        The number of objects.
    """
    objects = _objects(cloud)
    for label, rows in objects:
        path = area / name / "Annotations" / f"{label}.txt"
        _write_points(path, points[rows], cloud.colours[rows])
    rows = np.concatenate([rows for _, rows in objects])
    _write_points(area / name / f"{name}.txt", points[rows], cloud.colours[rows])
    return len(objects)


def write_array_room(area: Path, name: str, cloud: RoomCloud, points: Floats) -> int:
    """Write ROOM/{coord,color,segment,instance}.npy, as Pointcept's preprocessing does.

    Float32 [N, 3], uint8 [N, 3], int16 [N, 1] and int16 [N, 1]; instances count the objects of the
    room from 0. Arguments and result as of `write_text_room`.
    """
    objects = _objects(cloud)
    rows = np.concatenate([rows for _, rows in objects])
    number = np.repeat(np.arange(len(objects)), [len(rows) for _, rows in objects])
    arrays = {
        "coord": points[rows].astype(np.float32),
        "color": cloud.colours[rows],
        "segment": cloud.labels[rows, None],
        "instance": number.astype(np.int16)[:, None],
    }
    for stem, array in arrays.items():
        with whole_file(area / name / f"{stem}.npy") as file:
            np.save(file, np.ascontiguousarray(array))
    return len(objects)


def write_alignment(area: Path, angles: dict[str, int]) -> None:
    """Write AREA/AREA_alignmentAngle.txt: degrees by which each room is turned in the building."""
    head = (
        f"## Global alignment angle per disjoint space in {area.name} ##\n"
        "## Disjoint Space Name Global Alignment Angle ##\n"
    )
    lines = "".join(f"{name} {angle}\n" for name, angle in sorted(angles.items()))
    with whole_file(area / f"{area.name}_alignmentAngle.txt") as file:
        file.write((head + lines).encode())

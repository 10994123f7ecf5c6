"""Tiny rooms in the files of S3DIS."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcnn.datasets.s3dis_labels import CLASS_NAMES


def room_arrays(points: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A room 4 m wide whose floor, ceiling, walls and chairs differ in place and colour."""
    rng = np.random.default_rng(seed)
    segment = rng.choice([0, 1, 2, 8], points).astype(np.int16)
    coord = rng.uniform((10, -30, 1), (14, -27, 3.5), (points, 3))
    coord[segment == 0, 2] = 3.5
    coord[segment == 1, 2] = 1.0
    coord[segment == 2, 0] = 10.0
    color = np.clip(20 * segment[:, None] + rng.integers(0, 30, (points, 3)), 0, 255)
    # as the text has it: three digits; objects in the order of their files' names
    order = np.argsort([CLASS_NAMES[c] for c in segment], kind="stable")
    segment = segment[order]
    return {
        "coord": np.round(coord[order], 3).astype(np.float32),
        "color": color[order].astype(np.uint8),
        "segment": segment,
    }


def write_room(folder: Path, room: dict[str, np.ndarray]) -> Path:
    """Write `Annotations/CLASS_1.txt`, as Stanford3dDataset_v1.2 does; of no points one file."""
    (folder / "Annotations").mkdir(parents=True, exist_ok=True)
    for path in (folder / "Annotations").iterdir():
        path.unlink()
    for label in np.unique(room["segment"]).tolist() or [12]:
        rows = room["segment"] == label
        lines = [
            "{:.3f} {:.3f} {:.3f} {} {} {}\n".format(*xyz.tolist(), *rgb.tolist())
            for xyz, rgb in zip(room["coord"][rows].astype(float), room["color"][rows], strict=True)
        ]
        (folder / "Annotations" / f"{CLASS_NAMES[label]}_1.txt").write_text("".join(lines))
    return folder


def write_set(root: Path, rooms: dict[str, int]) -> Path:
    """Write rooms `Area_k/TYPE_n` of so many points each."""
    for seed, (name, points) in enumerate(rooms.items()):
        write_room(root / name, room_arrays(points, seed))
    return root

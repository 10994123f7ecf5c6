"""A set of many scans made of links to a few, so that an epoch is as long as one wants."""

from __future__ import annotations

from pathlib import Path


def linked_set(root: Path, folder: Path, scans: int) -> Path:
    """Write ``sequences/00`` with links to the labelled scans of a set, in turn.

    Args:
        root: a set in SemanticKITTI's layout.
        folder: an empty one.
        scans: number of links.

    Returns:
        ``folder``, a set in the same layout.

    Raises:
        FileNotFoundError: the set holds no labelled scan.
    """
    found = [
        (points, points.parents[1] / "labels" / f"{points.stem}.label")
        for points in sorted(root.glob("sequences/*/velodyne/*.bin"))
    ]
    labelled = [(points, labels) for points, labels in found if labels.is_file()]
    if not labelled:
        raise FileNotFoundError(f"{root}: no labelled scan (sequences/*/velodyne with labels)")
    sequence = folder / "sequences" / "00"
    for name in ("velodyne", "labels"):
        (sequence / name).mkdir(parents=True)
    for number in range(scans):
        points, labels = labelled[number % len(labelled)]
        (sequence / "velodyne" / f"{number:06d}.bin").symlink_to(points.resolve())
        (sequence / "labels" / f"{number:06d}.label").symlink_to(labels.resolve())
    return folder

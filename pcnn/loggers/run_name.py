"""A run's name in its tracker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run_name(folder: Path, config: Mapping[str, Any] | None) -> str:
    """Model, data set, voxel size, points where they are native, and the folder's name (a date).

    For example ``minkunet-kitti-0.1m-2026-03-01_12-30-00``. A job of a sweep has a number for its
    folder, so the sweep's name stands before that. Parts that the configuration lacks are left out.

    Args:
        folder: of the run.
        config: resolved configuration, or None for the folder's name alone.
    """
    groups = {key: value for key, value in (config or {}).items() if isinstance(value, dict)}
    name = {key: group.get("name") for key, group in groups.items()}
    data = groups.get("dataset", {})
    registration = name.get("task") == "registration"
    edge = data.get("pair_voxel_size" if registration else "voxel_size", data.get("voxel_size"))
    place = folder.resolve()
    parts = [
        name.get("model"),
        name.get("dataset"),
        None if edge is None else f"{edge:g}m",
        "point" if name.get("geometry") == "point" else None,
        place.parent.name if place.name.isdigit() else None,
        place.name,
    ]
    return "-".join(str(part) for part in parts if part)

"""Coloured, labelled clouds as .ply files, which every viewer opens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.files.whole_file import write_ply


def write_coloured_ply(
    path: str | Path,
    points: NDArray[np.floating],  # [P, 3] floating point [m], stored as float32
    rgb: NDArray[np.uint8],  # [P, 3] uint8
    labels: NDArray[np.integer] | None = None,  # [P] integers, stored as int32 property label
    comment: str = "",
    origin: Sequence[float] = (0.0, 0.0, 0.0),
) -> Path:
    """Write a binary little-endian ply with a colour and, if given, a label for every point.

    The file appears whole or not at all. An empty cloud gives a valid file without vertices.
    """
    values = {} if labels is None else {"label": labels}
    fields = dict.fromkeys(values, "<i4")
    return write_coloured_ply_parts(path, [(points, rgb, values)], fields, comment, origin)


Part = tuple[NDArray[np.floating], NDArray[np.uint8], Mapping[str, NDArray]]


def write_coloured_ply_parts(
    path: str | Path,
    parts: Iterable[Part],
    fields: Mapping[str, str],
    comment: str = "",
    origin: Sequence[float] = (0.0, 0.0, 0.0),
    wide: bool = False,
) -> Path:
    """Write a cloud part by part, as `write_coloured_ply`; a part is in memory at a time."""
    path = Path(path)
    own = [(name, "<f8" if wide or any(origin) else "<f4") for name in "xyz"]
    own += [(name, "u1") for name in ("red", "green", "blue")]
    dtype = np.dtype([*own, *fields.items()])

    def vertices(part: Part) -> NDArray[Any]:
        points, rgb, values = _checked(*part)
        found = np.empty(len(points), dtype)
        for axis, name in enumerate("xyz"):
            found[name] = points[:, axis].astype(dtype[name]) + origin[axis]
        for channel, name in enumerate(("red", "green", "blue")):
            found[name] = rgb[:, channel]
        for name in fields:
            found[name] = values[name]
        return found

    write_ply(path, map(vertices, parts), dtype, comment)
    return path


def _checked(points: Any, rgb: Any, values: Mapping[str, Any]) -> Part:
    points, rgb = np.asarray(points), np.asarray(rgb)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"points must be [P, 3], got {points.shape}")
    if rgb.shape != points.shape or rgb.dtype != np.uint8:
        raise ValueError(f"rgb must be uint8 {points.shape}, got {rgb.dtype} {rgb.shape}")
    for name, column in values.items():
        if np.asarray(column).shape != points.shape[:1]:
            raise ValueError(f"{name} must be {points.shape[:1]}, got {np.asarray(column).shape}")
    return points, rgb, values

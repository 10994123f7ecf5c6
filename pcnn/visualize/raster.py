"""Point clouds as images: seen from above, and as the sensor sees them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BACKGROUND = (255, 255, 255)


def from_above(
    points: NDArray[np.floating], rgb: NDArray[np.uint8], extent: float, pixels: int, dot: int = 1
) -> NDArray[np.uint8]:
    """Draw a cloud in orthographic projection along -z, the highest point of a pixel on top.

    The image's right is +x (ahead of a driving sensor), its top is +y (left of it).
    """
    column = np.floor((points[:, 0] + extent) / (2 * extent) * pixels).astype(np.int64)
    row = np.floor((extent - points[:, 1]) / (2 * extent) * pixels).astype(np.int64)
    return _paint(row, column, points[:, 2], rgb, (pixels, pixels), dot)


def from_sensor(
    points: NDArray[np.floating],  # [P, 3] [m] in the sensor's frame
    rgb: NDArray[np.uint8],  # [P, 3] uint8
    size: tuple[int, int],
    dot: tuple[int, int] = (1, 1),
) -> NDArray[np.uint8]:
    """Draw a cloud in spherical projection around the origin, the nearest point of a pixel on top.

    Azimuth runs over the full circle with +x in the middle and +y to the left, elevation over the
    range that holds 99.8 % of the points.
    """
    height, width = size
    distance = np.linalg.norm(points, axis=1)
    seen = distance > 1e-6
    points, rgb, distance = points[seen], rgb[seen], distance[seen]
    azimuth = np.arctan2(points[:, 1], points[:, 0])
    elevation = np.arcsin(np.clip(points[:, 2] / distance, -1, 1))
    low, high = np.quantile(elevation, (0.001, 0.999)) if len(elevation) else (-0.4, 0.1)
    span = max(1.02 * (high - low), 1e-3)
    top = (high + low + span) / 2
    column = np.floor((0.5 - azimuth / (2 * np.pi)) * width).astype(np.int64)
    row = np.floor((top - elevation) / span * height).astype(np.int64)
    return _paint(row, column, -distance, rgb, size, dot)


def _paint(
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    priority: NDArray[np.floating],
    rgb: NDArray[np.uint8],
    size: tuple[int, int],
    dot: int | tuple[int, int],
) -> NDArray[np.uint8]:
    """Colour pixels in order of rising priority, so that the highest stays on top."""
    height, width = size
    tall, wide = (dot, dot) if isinstance(dot, int) else dot
    image = np.empty((height, width, 3), np.uint8)
    image[:] = BACKGROUND
    order = np.argsort(priority, kind="stable")
    row, column, rgb = row[order], column[order], rgb[order]
    # all offsets of a point go in together, else a low point would cover a high one's border
    rows = (row[:, None] + np.arange(tall) - tall // 2).repeat(wide, 1)  # [P, tall * wide]
    columns = np.tile(column[:, None] + np.arange(wide) - wide // 2, (1, tall))
    colours = np.broadcast_to(rgb[:, None], (*rows.shape, 3))
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    image[rows[inside], columns[inside]] = colours[inside]
    return image

"""Cropping by horizontal distance."""

from __future__ import annotations

from pcnn.datasets.samples import Cloud


def crop(cloud: Cloud, radius: float | None) -> Cloud:
    """Keep the points within a vertical cylinder about the origin: x^2 + y^2 <= radius^2.

    The cylinder is the same after any rotation about the vertical axis and any mirroring.

    Args:
        cloud: origin at the sensor.
        radius: [m]; None keeps everything.

    Raises:
        ValueError: a radius that is not positive.
    """
    if radius is None:
        return cloud
    if not radius > 0.0:
        raise ValueError(f"crop must be a positive radius [m] or none, got {radius}")
    x, y = cloud.points[:, 0], cloud.points[:, 1]
    return cloud.select((x * x + y * y <= radius * radius).nonzero()[:, 0])

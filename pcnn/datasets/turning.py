"""Turning a cloud about the axes."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from pcnn.datasets.samples import Cloud


def turned(cloud: Cloud, angle: float, axis: int = 2) -> Cloud:
    """Turn a cloud about a coordinate axis.

    Args:
        cloud: any number of points.
        angle: [rad], counter-clockwise seen from the axis' positive end.
        axis: 0, 1, 2 for x, y, z.
    """
    cos, sin = math.cos(angle), math.sin(angle)
    parts = list(cloud.points.unbind(1))
    u, v = parts[(axis + 1) % 3], parts[(axis + 2) % 3]
    # element by element: a matrix product may round differently with another number of threads
    parts[(axis + 1) % 3], parts[(axis + 2) % 3] = u * cos - v * sin, u * sin + v * cos
    return replace(cloud, points=torch.stack(parts, dim=1))

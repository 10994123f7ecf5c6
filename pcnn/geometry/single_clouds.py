"""A batch taken apart."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import torch

from pcnn.geometry.base import Geometry

Geom = TypeVar("Geom", bound=Geometry)


def single_clouds(geometry: Geom) -> list[Geom]:
    """Single clouds, in the order of the batch: the inverse of ``collate``, without inverses.

    The host waits for the device once, for their numbers of rows.
    """
    if geometry.count is not None:
        raise ValueError(f"a {geometry.kind} with spare rows has no clouds of a known size")
    found = []
    for cloud, (start, end) in enumerate(pairwise(geometry.batch_offsets.tolist())):
        part = geometry.at_rows(torch.arange(start, end, device=geometry.device))
        keys = part.keys - (cloud << geometry.key_format.batch_shift)
        own = geometry.of_cloud(cloud)
        found.append(replace(part, keys=keys, batch_size=1, **own, check=False))  # type: ignore[type-var]
    return found

"""Rows of points on a level: the inverses of all levels between, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pcnn.geometry.geometries import Geometry

#: Inverses from the points up to a level's finer one; ``None``: they are not known.
Finer = tuple[Tensor, ...] | None


def finer_of_level(geometry: Geometry) -> Finer:
    """What a level made from this geometry keeps as its ``finer``."""
    if geometry.finer is None or geometry.inverse is None:
        return None
    return (*geometry.finer, geometry.inverse)


def point_rows(geometry: Geometry) -> Tensor:
    """``[P]`` int64 row of every point that the geometry, or its finest level, was made from.

    Raises:
        ValueError: the geometry, or a finer level of it, was not made from points.
    """
    inverses = finer_of_level(geometry)
    if inverses is None:
        raise ValueError(
            f"this {type(geometry).__name__} of tensor stride {geometry.tensor_stride} has no "
            "inverse that leads back to points: it was not made from points, or not by the floor "
            "of their cells (sites='reached', a generative layer); go back to the finest level "
            "first, ConvTranspose3d or unpool with sites="
        )
    rows, *coarser = inverses
    for above in coarser:
        rows = above[rows]
    return rows


def collated(geometries: Sequence[Geometry]) -> tuple[Finer, Tensor | None]:
    """``finer`` and ``inverse`` of single clouds that now lie one after another in a batch."""
    chains = [finer_of_level(geometry) for geometry in geometries]
    known = [chain for chain in chains if chain is not None]
    if len(known) == len(chains) and len({len(chain) for chain in known}) == 1:
        # an inverse has an entry for every row of the level before
        counts = [
            [*(len(above) for above in chain[1:]), geometry.rows]
            for chain, geometry in zip(known, geometries, strict=True)
        ]
        steps = zip(zip(*known, strict=True), zip(*counts, strict=True), strict=True)
        *finer, inverse = (joined_rows(parts, rows) for parts, rows in steps)
        return tuple(finer), inverse
    own = [geometry.inverse for geometry in geometries if geometry.inverse is not None]
    if len(own) < len(geometries):
        return None, None
    return None, joined_rows(own, [geometry.rows for geometry in geometries])


def joined_rows(parts: Sequence[Tensor], rows: Sequence[int]) -> Tensor:
    """Row numbers of geometries that now lie one after another, ``rows`` long each."""
    starts = [sum(rows[:index]) for index in range(len(rows))]
    return torch.cat([part + start for part, start in zip(parts, starts, strict=True)])

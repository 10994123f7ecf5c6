"""Fragments of a cloud: every point once in a fragment that holds one point of every cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pcnn.geometry import quantize


def fragments(
    points: Tensor, batch: Tensor | None, cell: float | Sequence[float], batch_size: int = 1
) -> Iterator[Tensor]:
    """Yield the rows of one point a cell, until every point was among them.

    Fragment k holds point ``k mod count`` of every cell, in the points' order, so that each one
    covers the whole cloud, and cells of fewer points repeat theirs. As many fragments as the
    fullest cell has points; works on the device of the points.

    Args:
        points: ``[P, 3]`` [m].
        batch: ``[P]`` cloud of every point; None means one.
        cell: edge of a cell [m], one number or one per axis.
        batch_size: number of clouds.

    Yields:
        ``[N]`` int64 rows, in the order of the cells; none is yielded for no points.

    Raises:
        ValueError: as `pcnn.geometry.quantize`.

    Source: the test mode of Pointcept's GridSample (transform.py).
    """
    inverse = quantize(points, batch, voxel_size=cell, batch_size=batch_size).inverse
    assert inverse is not None  # quantize sets it
    if not len(inverse):
        return
    order = inverse.argsort(stable=True)  # points of a cell beside one another
    counts = torch.bincount(inverse)
    first = counts.cumsum(0) - counts
    for k in range(int(counts.max())):
        yield order[first + k % counts]

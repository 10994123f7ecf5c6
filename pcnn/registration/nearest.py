"""Nearest neighbours, in space within a radius and in the space of descriptors."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.cell_search import nearest_in_cells

#: Entries of a block of distances between descriptors.
BLOCK = 1 << 24


def nearest_within(query: Tensor, points: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The nearest point of every query within a radius, exact.

    The radius grows from an eighth: a query with a neighbour within a small one has its nearest
    there, so dense places are not searched at the full radius.
    """
    query, points = query.float(), points.float()
    distance = query.new_full((len(query),), torch.inf)
    index = torch.full((len(query),), -1, dtype=torch.int64, device=query.device)
    open_rows = torch.arange(len(query), device=query.device)
    for step in (8, 4, 2, 1):
        if len(open_rows) == 0:
            break
        gap, found = nearest_in_cells(query[open_rows], points, radius / step)
        distance[open_rows], index[open_rows] = gap, found
        open_rows = open_rows[found < 0]
    return distance, index


def nearest_descriptors(query: Tensor, descriptors: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest descriptor of every query, in Euclidean distance.

    Distances are compared as ``|d|² - 2 q·d`` in blocks, in float32; the distance that is returned
    is computed again from the difference.
    """
    if query.ndim != 2 or descriptors.ndim != 2 or query.shape[1] != descriptors.shape[1]:
        raise ValueError(
            "descriptors must be [Q, C] and [N, C] of the same length C, got "
            f"{list(query.shape)} and {list(descriptors.shape)}"
        )
    if len(descriptors) == 0:
        raise ValueError("no descriptors to search among")
    query, descriptors = query.float(), descriptors.float()
    if not bool(torch.isfinite(query).all() & torch.isfinite(descriptors).all()):
        raise ValueError("descriptors hold NaN or infinite numbers: nothing is nearest to them")
    index = _least_products(query, descriptors)
    return (query - descriptors[index]).norm(dim=1), index


def _least_products(query: Tensor, others: Tensor) -> Tensor:
    """Rows [Q] of the others [N, C] with the least ``|d|² - 2 q·d``, in the dtype of both."""
    # centred: a common offset costs digits
    middle = others.mean(0)
    centred = others - middle
    square = centred.square().sum(1)  # [N]
    parts = [
        (square - 2 * (block - middle) @ centred.T).argmin(1)
        for block in query.split(max(BLOCK // len(others), 1))
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64, device=query.device)

"""One label for every voxel, of the labels of its points."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.geometry import Geometry

#: Ways to agree.
RULES = ("unanimous", "majority")


def vote_labels(
    labels: Tensor, geometry: Geometry, ignore_index: int = -100, rule: str = "unanimous"
) -> Tensor:
    """Label of every row of a geometry by those of its points; conflicts are ignored.

    Points labelled ``ignore_index`` have no say; a row without others is ignored.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    rows = geometry.point_rows()
    floating = labels.is_floating_point() or labels.is_complex()
    if labels.ndim != 1 or len(labels) != len(rows) or floating:
        raise ValueError(
            f"the geometry was made from {len(rows)} points: labels must be [{len(rows)}] integers,"
            f" got {labels.dtype} {list(labels.shape)}"
        )
    values = labels.to(torch.int64)
    counts = values != ignore_index
    if rule == "majority":
        counts, values, rows = _winners(values[counts], rows[counts], geometry.rows)
    limits = torch.iinfo(torch.int64)
    low = values.new_full((geometry.rows,), limits.max)
    high = values.new_full((geometry.rows,), limits.min)
    low.scatter_reduce_(0, rows, torch.where(counts, values, limits.max), "amin")
    high.scatter_reduce_(0, rows, torch.where(counts, values, limits.min), "amax")
    return torch.where(low == high, low, ignore_index)


def _winners(labels: Tensor, rows: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The most frequent labels of every row: which of the (label, row) listed they are."""
    pairs, votes = torch.unique(torch.stack([rows, labels], 1), dim=0, return_counts=True)
    most = votes.new_zeros(n).scatter_reduce_(0, pairs[:, 0], votes, "amax")
    return votes == most[pairs[:, 0]], pairs[:, 1], pairs[:, 0]

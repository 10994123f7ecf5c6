"""Sums of sparse tensors on different sites."""

from __future__ import annotations

from functools import reduce

import torch

from pcnn.compat.spconv.pytorch.core import SparseConvTensor
from pcnn.compat.spconv.pytorch.ops import require
from pcnn.compat.spconv.pytorch.sites import Sites
from pcnn.geometry.union import union_of


def sparse_add(*tens: SparseConvTensor) -> SparseConvTensor:
    """Sum of tensors over the sites that at least one of them has.

    Where one tensor has all the sites, its rows and its ``indice_dict`` are those of the result;
    otherwise rows are sorted by (batch, axes).
    """
    require(len(tens) > 0, "needs at least one tensor")
    first = tens[0]
    facts = [(each.features.shape[1], each.spatial_shape, each.batch_size) for each in tens]
    for position, own in enumerate(facts):
        require(
            own == facts[0],
            f"tensor {position} has (channels, spatial_shape, batch_size) {own}, tensor 0 "
            f"{facts[0]}; a sum needs the same",
        )
    plain = [Sites(each.indices, each.spatial_shape, each.batch_size) for each in tens]
    union, rows = union_of([sites.grid for sites in plain])
    dtype = reduce(torch.promote_types, [each.features.dtype for each in tens])
    sums = first.features.new_zeros(union.rows, first.features.shape[1], dtype=dtype)
    for each, sites, own_rows in zip(tens, plain, rows, strict=True):
        # row of the union for every row of the tensor
        places = own_rows if sites.rank is None else own_rows[sites.rank]
        sums = sums.index_add(0, places, each.features.to(dtype))
    for each, sites in zip(tens, plain, strict=True):
        if sites.grid is union:
            order = sites.rank
            return each.replace_feature(sums if order is None else sums.index_select(0, order))
    sites = Sites(None, first.spatial_shape, first.batch_size, union)
    return first.on_sites(sums, sites, first.spatial_shape, {})

"""The correctness gate of maps: every layout of a product against the oracle's triplets."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.bench.mapping.products import PRODUCTS
from pcnn.bench.oracle import Pair
from pcnn.bench.verify import CheckFailed, Configuration, Proof, check_triplets
from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import TILE_ROWS


def check_product(configuration: Configuration, built: KernelMap, truth: list[Pair]) -> Proof:
    """Compare a product of a map with the oracle's triplets.

    Args:
        configuration: what was built; its ``product`` says which layouts are compared.
        built: the map.
        truth: rows (j, i) of every slot.

    Raises:
        CheckFailed: a layout that does not hold exactly these triplets.
    """
    proof = check_triplets(configuration, built, truth)
    transposed = [(i, j) for j, i in truth]
    views = ((built, truth), (built.transpose(), transposed))
    for (view, pairs), names in zip(views, PRODUCTS[str(configuration.product)], strict=True):
        if "table" in names:
            expected = true_table(view, pairs)
            if not torch.equal(view.layout("table")[0].to(torch.int32), expected):
                raise CheckFailed(f"{configuration}: the neighbour table is not the triplets'")
        if "tiles" in names:
            check_tiles(configuration, view)
    return proof


def true_table(shape: KernelMap, pairs: list[Pair]) -> Tensor:
    """Neighbour table ``[N_out, K]`` int32 of the triplets."""
    device = pairs[0][0].device
    table = torch.full((shape.n_out, shape.volume), -1, dtype=torch.int32, device=device)
    for slot, (j, i) in enumerate(pairs):
        table[i, slot] = j.to(torch.int32)
    return table


def check_tiles(configuration: Configuration, built: KernelMap) -> None:
    """Check that a map's tiles hold every row once, and just the slots of their rows.

    Raises:
        CheckFailed: they do not.
    """
    occupied = built.layout("table")[0] >= 0  # [N_out, K]
    order, slots, counts = (tensor.long() for tensor in built.layout("tiles"))
    rows, volume = occupied.shape
    if not torch.equal(order.sort().values, torch.arange(rows, device=order.device)):
        raise CheckFailed(f"{configuration}: the order of the tiles is no permutation of the rows")
    tile = torch.arange(rows, device=order.device) // TILE_ROWS
    tiles = -(-rows // TILE_ROWS)
    touched = torch.zeros(tiles, volume, dtype=torch.int32, device=order.device)
    touched.index_add_(0, tile, occupied[order].to(torch.int32))
    listed = torch.zeros_like(touched)
    used = torch.arange(volume, device=order.device) < counts[:, None]  # [tiles, K]
    owner = torch.arange(tiles, device=order.device)[:, None].expand_as(used)
    named = slots[used]
    if bool(((named < 0) | (named >= volume)).any()):
        raise CheckFailed(f"{configuration}: a tile lists slots that the kernel does not have")
    listed[owner[used], named] = 1
    distinct = int(counts.sum()) == int(listed.sum())
    if not distinct or not torch.equal(listed > 0, touched > 0):
        raise CheckFailed(f"{configuration}: a tile lists other slots than its rows fill")

"""The correctness gate of maps: every layout of a product against the oracle's triplets."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.bench.mapping.products import PRODUCTS
from pcnn.bench.oracle import Pair
from pcnn.bench.verify import CheckFailed, Configuration, Proof, check_triplets
from pcnn.geometry import KernelMap


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
    """Check that a map's tiles hold every row once, and just the slots and inputs of their rows.

    Raises:
        CheckFailed: they do not.
    """
    table = built.layout("table")[0]  # [N_out, K]
    out, slots, counts, inputs = (tensor.long() for tensor in built.layout("tiles"))
    rows, volume = table.shape
    if not torch.equal(out[out >= 0].sort().values, torch.arange(rows, device=out.device)):
        raise CheckFailed(f"{configuration}: the tiles hold a row not just once")
    used = torch.arange(slots.shape[1], device=out.device) < counts[:, None]  # [tiles, K]
    owner = torch.arange(len(slots), device=out.device)[:, None].expand_as(used)[used]
    named = slots[used]
    if bool(((named < 0) | (named >= volume)).any()):
        raise CheckFailed(f"{configuration}: a tile lists slots that the kernel does not have")
    expected = torch.where(out[:, None, :] >= 0, table.t()[:, out.clamp(min=0)].movedim(1, 0), -1)
    listed = torch.zeros(len(slots), volume, dtype=torch.int64, device=out.device)
    listed.index_put_((owner, named), torch.ones_like(named), accumulate=True)
    if not torch.equal(listed, (expected >= 0).any(2).long()):
        raise CheckFailed(f"{configuration}: a tile lists other slots than its rows fill")
    if not torch.equal(inputs[used], expected[owner, named].long()):
        raise CheckFailed(f"{configuration}: a tile gathers other inputs than the table holds")
    if bool((counts.diff() > 0).any()):
        raise CheckFailed(f"{configuration}: the tiles do not stand by falling number of slots")

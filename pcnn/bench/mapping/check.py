"""The correctness gate of maps: every layout of a product against the oracle's triplets."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.bench.mapping.products import layouts_of
from pcnn.bench.oracle import Pair
from pcnn.bench.verify import CheckFailed, Configuration, Proof, check_triplets
from pcnn.geometry import KernelMap
from pcnn.geometry.slot_tiles import TILE_ROWS, sections_of


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
    products = layouts_of(str(configuration.product), built.symmetric)
    for (view, pairs), names in zip(views, products, strict=True):
        if "table" in names:
            expected = true_table(view, pairs)
            if not torch.equal(view.layout("table")[0].to(torch.int32), expected):
                raise CheckFailed(
                    f"{configuration}: the neighbour table does not agree with the triplets"
                )
        if "fitting_tiles" in names:
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

    Where tiles are cut into sections, a row stands once in each section of which it fills a slot.

    Raises:
        CheckFailed: they do not.
    """
    (in_index, out_index, _), volume = built.layout("pairs"), built.volume
    rows, device = built.n_out, in_index.device
    table = torch.full((rows, volume), -1, dtype=torch.int64, device=device)
    table[out_index.long(), built.slot_index] = in_index.long()  # checked against the oracle
    fitting = built.layout("fitting_tiles")
    out, slots, counts, inputs = (tensor.long() for tensor in fitting)
    sections = sections_of(built) if len(out) > -(-rows // TILE_ROWS) else 1
    every = torch.arange(rows, device=device)
    if sections == 1 and not torch.equal(out[out >= 0].sort().values, every):
        raise CheckFailed(f"{configuration}: the tiles do not hold every row exactly once")
    used = torch.arange(slots.shape[1], device=out.device) < counts[:, None]  # [tiles, K]
    owner = torch.arange(len(slots), device=out.device)[:, None].expand_as(used)[used]
    named = slots[used]
    if bool(((named < 0) | (named >= volume)).any()):
        raise CheckFailed(f"{configuration}: a tile lists slots that the kernel does not have")
    expected = torch.where(out[:, None, :] >= 0, table.t()[:, out.clamp(min=0)].movedim(1, 0), -1)
    listed = torch.zeros(len(slots), volume, dtype=torch.int64, device=out.device)
    listed.index_put_((owner, named), torch.ones_like(named), accumulate=True)
    filled = (expected >= 0).any(2)  # [tiles, K]
    if sections > 1:  # of the plane that the tile is of
        plane = torch.where(counts > 0, slots[:, 0] % sections, -1)
        filled &= torch.arange(volume, device=device) % sections == plane[:, None]
    if not torch.equal(listed, filled.long()):
        raise CheckFailed(f"{configuration}: a tile lists other slots than its rows fill")
    if not torch.equal(inputs[used], expected[owner, named]):
        raise CheckFailed(f"{configuration}: a tile gathers other inputs than the table holds")
    if int((inputs[used] >= 0).sum()) != len(in_index):
        raise CheckFailed(f"{configuration}: the tiles do not hold every triplet exactly once")
    if bool((counts.diff() > 0).any()):
        raise CheckFailed(f"{configuration}: the tiles are not in order of falling numbers")

"""Products of a builder by name: the layouts that it must deliver, so that no work is hidden.

* ``table``: the neighbour table alone.
* ``pairs``: the triplets by slot.
* ``ready``: all that a forward pass of ``auto`` on a GPU reads: the row lists of its tiles.
* ``train``: that, and what its backward reads: the triplets, and the tiles of the transpose. A
  symmetric map serves as its own transpose.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pcnn.bench.oracle import Pair
from pcnn.bench.rows import Row, described
from pcnn.bench.verify import CheckFailed, Proof, check_triplets
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.slot_tiles import TILE_ROWS, sections_of
from pcnn.maps import MapBuilder
from pcnn.nn import Conv3d, Sequential
from pcnn.ops.engine import ENGINES
from pcnn.ops.plan import Planner
from pcnn.ops.sites import output_sites

#: The layouts that ``auto`` reads on a GPU, on any device that makes them.
AUTO = ENGINES["auto"].dataflows(torch.device("cuda"))[0]


@dataclass(frozen=True)
class Planned:
    """The plan of a network with one kernel map, in the place of a map builder."""

    name: str = "plan"

    def make(self, grid: VoxelGrid, kernel: Kernel, product: str) -> KernelMap:
        """Plan the output sites, the map, and its layouts.

        Args:
            grid: input sites with empty caches.
            kernel: the relation; its padding is the usual one.
            product: ``ready`` and ``train`` are what the layer's own dataflow asks for, forward and
                with backward; any other name is the one layout that is built.
        """
        own = product in ("ready", "train")
        _planner(kernel, None if own else (product,))(grid, backward=product == "train")
        return grid.map_to(grid.strided(kernel), kernel, Unplanned())

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map to the sites that the plan finds itself."""
        return self.make(source, kernel, "table")


@functools.lru_cache(maxsize=64)
def _planner(kernel: Kernel, layouts: tuple[str, ...] | None) -> Planner:
    """Planner of a convolution within a network: its dry run is no part of a plan."""
    # a pointwise layer stands before it, which has no map: a plan leaves out the layouts that only
    # the gradient of the network's own input would read
    engine = replace(ENGINES["auto"], dataflow=AUTO)
    before = Conv3d(1, 1, 1, engine=engine)
    return Planner(
        Sequential(before, Conv3d(1, 1, kernel.size, kernel.stride, engine=engine)), layouts
    )


class Unplanned:
    """A builder that is not to be asked."""

    def build(self, source: Any, target: Any, kernel: Kernel) -> KernelMap:
        """Refuse.

        Raises:
            CheckFailed: always.
        """
        raise CheckFailed(f"the plan left out the map of {kernel}")


Names = tuple[str, ...]


def layouts_of(product: str, symmetric: bool) -> tuple[Names, Names]:
    """Layouts that a product holds of a map, and of its transpose."""
    if product not in ("ready", "train"):
        return (product,), ()
    if product == "ready":
        return AUTO.needs, ()
    return (*AUTO.needs, *AUTO.needs_weight_grad), () if symmetric else AUTO.needs


def build(grid: VoxelGrid, builder: MapBuilder, kernel: Kernel, product: str) -> KernelMap:
    """Find the output sites, build the kernel map and a product of it; see `bare`."""
    if isinstance(builder, Planned):
        built = builder.make(grid, kernel, product)
    else:
        built = builder.build(grid, output_sites(grid, kernel), kernel)
        # told to every map that a geometry keeps; tiles are cut along it
        built.edges.layouts.setdefault(("kernel_size", False), kernel.size_layout)
    deliver(built, product)
    return built


def deliver(built: KernelMap, product: str) -> None:
    """Have a kernel map hold a product."""
    forward, backward = layouts_of(product, built.symmetric)
    for name in forward:
        built.layout(name)
    for name in backward:
        built.transpose().layout(name)


def floor_ms(
    built: KernelMap, source: VoxelGrid, target: VoxelGrid, product: str, bandwidth: float
) -> float:
    """Lower bound of the time to build a product: keys read once, product written once [ms].

    Args:
        built: a map that holds the product.
        source: input sites; their keys are read.
        target: output sites; other ones than the input's are written.
        product: a name in `PRODUCTS`.
        bandwidth: bytes read plus bytes written in a second [bytes/s].
    """
    size = source.keys.nbytes + (0 if target is source else target.keys.nbytes)
    written = {(t.data_ptr(), t.shape): t.nbytes for t in _tensors(built, product)}
    return 1e3 * (size + sum(written.values())) / bandwidth


def _tensors(built: KernelMap, product: str) -> Iterator[Tensor]:
    forward, backward = layouts_of(product, built.symmetric)
    for view, names in ((built, forward), (built.transpose(), backward)):
        for name in names:
            yield from view.layout(name)


def check_product(row: Row, built: KernelMap, truth: list[Pair]) -> Proof:
    """Compare a product of a map with the oracle's triplets.

    Raises:
        CheckFailed: a layout that does not hold exactly these triplets.
    """
    proof = check_triplets(row, built, truth)
    transposed = [(i, j) for j, i in truth]
    views = ((built, truth), (built.transpose(), transposed))
    products = layouts_of(str(row.product), built.symmetric)
    for (view, pairs), names in zip(views, products, strict=True):
        if "table" in names:
            expected = _true_table(view, pairs)
            if not torch.equal(view.layout("table")[0].to(torch.int32), expected):
                raise CheckFailed(
                    f"{described(row)}: the neighbour table does not agree with the triplets"
                )
        if "fitting_tiles" in names:
            check_tiles(row, view)
    return proof


def _true_table(shape: KernelMap, pairs: list[Pair]) -> Tensor:
    device = pairs[0][0].device
    table = torch.full((shape.n_out, shape.volume), -1, dtype=torch.int32, device=device)
    for slot, (j, i) in enumerate(pairs):
        table[i, slot] = j.to(torch.int32)
    return table


def check_tiles(row: Row, built: KernelMap) -> None:
    """Check that a map's tiles hold every row once, and just the slots and inputs of their rows.

    Where tiles are cut into sections, a row stands once in each section of which it fills a slot.

    Raises:
        CheckFailed: they do not.
    """
    (in_index, out_index, _), volume = built.layout("pairs"), built.volume
    n_out, device = built.n_out, in_index.device
    table = torch.full((n_out, volume), -1, dtype=torch.int64, device=device)
    table[out_index.long(), built.slot_index] = in_index.long()  # checked against the oracle
    fitting = built.layout("fitting_tiles")
    out, slots, counts, inputs = (tensor.long() for tensor in fitting)
    sections = sections_of(built) if len(out) > -(-n_out // TILE_ROWS) else 1
    every = torch.arange(n_out, device=device)
    if sections == 1 and not torch.equal(out[out >= 0].sort().values, every):
        raise CheckFailed(f"{described(row)}: the tiles do not hold every row exactly once")
    used = torch.arange(slots.shape[1], device=out.device) < counts[:, None]  # [tiles, K]
    owner = torch.arange(len(slots), device=out.device)[:, None].expand_as(used)[used]
    named = slots[used]
    if bool(((named < 0) | (named >= volume)).any()):
        raise CheckFailed(f"{described(row)}: a tile lists slots that the kernel does not have")
    expected = torch.where(out[:, None, :] >= 0, table.t()[:, out.clamp(min=0)].movedim(1, 0), -1)
    listed = torch.zeros(len(slots), volume, dtype=torch.int64, device=out.device)
    listed.index_put_((owner, named), torch.ones_like(named), accumulate=True)
    filled = (expected >= 0).any(2)  # [tiles, K]
    if sections > 1:  # of the plane that the tile is of
        plane = torch.where(counts > 0, slots[:, 0] % sections, -1)
        filled &= torch.arange(volume, device=device) % sections == plane[:, None]
    if not torch.equal(listed, filled.long()):
        raise CheckFailed(f"{described(row)}: a tile lists other slots than its rows fill")
    if not torch.equal(inputs[used], expected[owner, named]):
        raise CheckFailed(f"{described(row)}: a tile gathers other inputs than the table holds")
    if int((inputs[used] >= 0).sum()) != len(in_index):
        raise CheckFailed(f"{described(row)}: the tiles do not hold every triplet exactly once")
    if bool((counts.diff() > 0).any()):
        raise CheckFailed(f"{described(row)}: the tiles are not in order of falling numbers")

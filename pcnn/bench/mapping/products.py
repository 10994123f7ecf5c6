"""What a kernel map delivers, by name, so that work cannot hide.

* ``table``: the neighbour table alone.
* ``pairs``: the triplets by slot.
* ``ready``: all that a forward pass of ``auto`` on a GPU reads: the row lists of its tiles.
* ``train``: that, and what its backward reads: the triplets, and the tiles of the transpose. A
  symmetric map serves as its own transpose.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TypeVar

from torch import Tensor

from pcnn.bench.mapping.planned import AUTO, Planned
from pcnn.geometry import Geometry, Kernel, KernelMap, VoxelGrid
from pcnn.maps import MapBuilder
from pcnn.ops.sites import strided

#: Voxels or points.
G = TypeVar("G", bound=Geometry)

PRODUCTS = ("table", "pairs", "ready", "train")

Names = tuple[str, ...]


def layouts_of(product: str, symmetric: bool) -> tuple[Names, Names]:
    """Layouts that a product holds of a map, and of its transpose.

    Args:
        product: a name in `PRODUCTS`.
        symmetric: whether the map is.
    """
    if product not in ("ready", "train"):
        return (product,), ()
    if product == "ready":
        return AUTO.needs, ()
    return (*AUTO.needs, *AUTO.needs_vvor), () if symmetric else AUTO.needs


def bare(sites: G) -> G:
    """Return the same sites without the levels and maps that are cached on them."""
    return copy.copy(sites)


def build(grid: VoxelGrid, builder: MapBuilder, kernel: Kernel, product: str) -> KernelMap:
    """Find the output sites, build the kernel map and a product of it.

    Args:
        grid: input sites; `bare`, if their levels shall be found anew.
        builder: finds the triplets.
        kernel: the relation.
        product: a name in `PRODUCTS`.
    """
    if isinstance(builder, Planned):
        built = builder.make(grid, kernel, product)
    else:
        built = builder.build(grid, strided(grid, kernel), kernel)
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

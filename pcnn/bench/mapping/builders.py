"""The builders that the suite compares; a new one is one line here."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pcnn.bench.mapping.products import Planned
from pcnn.maps import MapBuilder, SortedSearch
from pcnn.maps.binary_search import BinarySearch
from pcnn.maps.double_traversed import DoubleTraversed
from pcnn.maps.hash_table import HashTable
from pcnn.maps.windowed import Windowed
from pcnn.maps.z_delta import ZDelta

#: Served by every device. Brute force, N^2, is the oracle's business.
EVERYWHERE: tuple[MapBuilder, ...] = (SortedSearch(),)
#: Served by CUDA devices.
ON_CUDA: tuple[MapBuilder, ...] = (
    HashTable(),
    DoubleTraversed(),
    BinarySearch(),
    ZDelta(),
    ZDelta("z_delta_32", key_bits=32),
    Windowed(),
    Planned(),
)
#: Settings of a builder that suit one product, by its name and the product's.
FOR_PRODUCT: dict[tuple[str, str], MapBuilder] = {
    ("z_delta", "pairs"): ZDelta(product="pairs"),
    ("z_delta_32", "pairs"): ZDelta("z_delta_32", product="pairs", key_bits=32),
}
#: Names of those that fill a hash table with the source side before they search.
HASHED = ("hash_table",)

#: Those that build all maps of a network: Spira's and ours; all there are, if neither is there.
IN_NETWORKS = ("z_delta", "windowed")

#: TorchSparse 4.4: steps of the hash-table builder, each with those before it, by label.
HASH_TABLE_STEPS: tuple[tuple[str, HashTable], ...] = (
    ("baseline", HashTable(search="hash", fused=False, simplified=False, symmetry=False)),
    ("+ grid", HashTable(search="grid", fused=False, simplified=False, symmetry=False)),
    ("+ fused kernel", HashTable(search="grid", simplified=False, symmetry=False)),
    ("+ simplified control", HashTable(search="grid", symmetry=False)),
    ("+ symmetry", HashTable(search="grid")),
)
#: Minuet 5.1: sizes (B, C) of source and query blocks, and the builder of each.
BLOCK_SIZES: tuple[tuple[int, int, DoubleTraversed], ...] = tuple(
    (b, c, DoubleTraversed(source_block=b, query_block=c))
    for b in (64, 128, 256, 512)
    for c in (128, 256, 512)
)


def builders_for(device: torch.device) -> list[MapBuilder]:
    """Builders that serve a device."""
    return [*EVERYWHERE, *(ON_CUDA if device.type == "cuda" else ())]


def named(device: torch.device, names: Sequence[str]) -> list[MapBuilder]:
    """Builders of these names, in their order; all that serve the device if there is no name.

    Raises:
        ValueError: no builder of that name serves the device.
    """
    known = {builder.name: builder for builder in builders_for(device)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"no map builder named {', '.join(unknown)} on {device}; there are {', '.join(known)}"
        )
    return [known[name] for name in names] if names else list(known.values())


def for_product(builder: MapBuilder, product: str) -> MapBuilder:
    """The builder of the same name, set for a product if it has a setting for it."""
    return FOR_PRODUCT.get((builder.name, product), builder)

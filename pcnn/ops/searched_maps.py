"""Which maps of a network a plan finds together on a device, and where it reports about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcnn.geometry import KeyFormat
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.slot_tiles import WHOLE_SLOTS
from pcnn.maps.network_search import PackedShape
from pcnn.maps.packed_search import Search as PackedSearch
from pcnn.maps.window_search import SearchShape
from pcnn.ops.recipe import Recipe, Wanted


@dataclass(frozen=True)
class SearchedMap:
    """A map between levels that are made by floor alone."""

    number: int  # in the recipe
    source: int  # number of the input level
    target: int  # number of the output level
    shape: SearchShape | PackedShape | None  # of its search
    slots: slice  # words of the report: counts of its slots, or what a packed search sums
    is_large: bool  # its density decides how it is tiled


def listing_maps(maps: Sequence[SearchedMap]) -> list[tuple[SearchedMap, PackedShape]]:
    """Maps whose packed search lists pairs, with the shape of it."""
    shaped = ((entry, entry.shape) for entry in maps)
    return [(e, shape) for e, shape in shaped if isinstance(shape, PackedShape) and shape.listed]


def searched_maps(
    recipe: Recipe,
    strides: Mapping[int, Triple],
    key_format: KeyFormat,
    packed: tuple[PackedSearch, Sequence[Wanted]] | None,
    word: int,
) -> list[SearchedMap]:
    """The maps of a recipe that a plan finds together."""
    found = []
    for number, planned in enumerate(recipe.maps):
        if planned.source not in strides or planned.target not in strides:
            continue
        fine, coarse = strides[planned.source], strides[planned.target]
        kernel, ends = planned.kernel, (planned.source, planned.target)
        steps = tuple(a * b for a, b in zip(fine, kernel.stride, strict=True))
        words = volume = kernel.volume
        shape: SearchShape | PackedShape | None = None
        if kernel.is_disjoint and planned.target and steps == coarse:
            pass
        elif packed is None:
            shape = SearchShape.of(kernel, fine, key_format)
        else:
            search, wanted = packed
            itself = kernel.is_symmetric and planned.source == planned.target
            shape = PackedShape.of(kernel, fine, key_format, itself, wanted[number], search)
            if shape is None:
                continue
            words, word = shape.words, word + word % 2  # its numbers have 64 bits
        slots = slice(word, word + words)
        found.append(SearchedMap(number, *ends, shape, slots, volume > WHOLE_SLOTS))
        word += words
    return found

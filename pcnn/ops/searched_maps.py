"""Which maps of a network a plan finds together on a device, and where it reports about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcnn.geometry import KeyFormat
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.steps import WHOLE_SLOTS
from pcnn.maps.base import Relation
from pcnn.maps.split_tables import listed_slots
from pcnn.ops.recipe import Recipe, Wanted


@dataclass(frozen=True)
class SearchedMap:
    """A map between levels that are made by floor alone."""

    number: int  # in the recipe
    source: int  # number of the input level
    target: int  # number of the output level
    relation: Relation  # of its sites
    tiles: bool  # the kernel tiles space between the levels, so nothing is searched
    slots: slice  # words of the report: counts of its slots
    listed: tuple[int, ...] = ()  # slots whose pairs are listed in a room

    @property
    def is_large(self) -> bool:
        """True if its density decides how it is tiled."""
        return self.relation.kernel.volume > WHOLE_SLOTS


def searched_maps(
    recipe: Recipe,
    strides: Mapping[int, Triple],
    key_format: KeyFormat,
    wanted: Sequence[Wanted],
    word: int,
) -> list[SearchedMap]:
    """The maps of a recipe that a plan finds together."""
    found = []
    for number, (planned, read) in enumerate(zip(recipe.maps, wanted, strict=True)):
        if planned.source not in strides or planned.target not in strides:
            continue
        fine, coarse = strides[planned.source], strides[planned.target]
        kernel, ends = planned.kernel, (planned.source, planned.target)
        steps = tuple(a * b for a, b in zip(fine, kernel.stride, strict=True))
        tiles = kernel.is_disjoint and bool(planned.target) and steps == coarse
        itself = kernel.is_symmetric and planned.source == planned.target
        relation = Relation(kernel, fine, key_format)
        slots = slice(word, word + kernel.volume)
        # of a kernel that tiles space the rows bound how many pairs there are
        listed = () if tiles else listed_slots(kernel, itself, (name for name, _ in read))
        found.append(SearchedMap(number, *ends, relation, tiles, slots, listed))
        word = slots.stop
    return found

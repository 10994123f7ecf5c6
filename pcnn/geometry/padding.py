"""Layouts in tensors of fixed size, which take one map after another.

Room that a map does not fill is spare: no product reads it, or it reads zeros and adds them to
spare rows. A spare row of an output is written as 0 where its layout lists every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry.steps import BEYOND, TILE_ROWS, Layout, stored_steps


class Part(NamedTuple):
    """A tensor of fixed size, and what it takes."""

    own: Tensor  # contiguous, at least as many numbers as source
    source: Tensor  # what is copied to its beginning, of the same dtype
    spare: float | None = None  # what is written behind that; None: nothing
    first: int | None = None  # of the output rows of tiles


class MapRoom(NamedTuple):
    """Sizes of a map's tensors, seen from one side."""

    n_in: int  # input rows
    n_out: int  # output rows, a multiple of TILE_ROWS; at least one row of either side is spare
    triplets: int  # of the map


class Padding(NamedTuple):
    """How one kind of layout lies in tensors of fixed size, by its tensors, room and own rows."""

    lengths: Callable[[Layout, MapRoom, int], Iterable[int | None]]  # None: as many as there are
    spares: Callable[[Layout, MapRoom, int], Iterable[dict[str, int]]]  # of `Part`

    def make(self, layout: Layout, room: MapRoom, n_out: int) -> Layout:
        """Tensors for layouts like this one."""
        pairs = zip(layout, self.lengths(layout, room, n_out), strict=True)
        return tuple(
            one.clone() if length is None else one.new_zeros(length, *one.shape[1:])
            for one, length in pairs
        )

    def parts(self, own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
        """What these tensors take of a layout."""
        given = zip(own, layout, self.spares(layout, room, n_out), strict=True)
        return [Part(memory, tensor, **spare) for memory, tensor, spare in given]


def place_in_torch(parts: Iterable[Part]) -> None:
    """Copy and write all parts; those without memory (on the meta device) are left out."""
    for own, source, spare, first in parts:
        if own.device.type == "meta":
            continue
        flat, values = own.view(-1), source.reshape(-1)
        if first is not None:
            places = torch.arange(len(flat), dtype=own.dtype, device=own.device)
            there = first + places[: len(values)] % TILE_ROWS
            flat[len(values) :].copy_(places[len(values) :])
            values = torch.where(values < 0, there, values)
        elif spare is not None:
            flat[len(values) :].fill_(spare)
        flat[: len(values)].copy_(values)


def _rows(spare: int) -> Padding:
    """A layout by output row, with what stands in a row without triplets."""
    return Padding(lambda _, room, n_out: [room.n_out], lambda *_: [{"spare": spare}])


def _lengths_of_steps(layout: Layout, room: MapRoom, n_out: int) -> list[int]:
    sections = layout[0].shape[0] // max(1, _tiles_of(n_out))
    tiles = sections * _tiles_of(room.n_out)
    if len(layout) > 5:
        steps = stored_steps(room.triplets, tiles, layout[5].shape[1] - 1)
    else:
        steps = tiles * -(-layout[3].shape[0] // max(1, layout[0].shape[0]))
    return [tiles, tiles, tiles, steps, steps, tiles, room.triplets][: len(layout)]


def _spare_steps(layout: Layout, room: MapRoom, n_out: int) -> list[dict[str, int]]:
    """Spare tiles take no step. Of a map in one section they hold the spare rows."""
    tiles = layout[0].shape[0]
    whole = tiles == _tiles_of(n_out)
    out = {"first": max(0, tiles - 1) * TILE_ROWS} if whole else {"spare": -1}
    none = {"spare": BEYOND}
    return [out, none, none, {}, {}, {"spare": 0}, {}][: len(layout)]


def _tiles_of(rows: int) -> int:
    return -(-rows // TILE_ROWS)


#: A layout with as many numbers as the kernel has slots.
BY_SLOT = Padding(lambda *_: [None], lambda *_: [{}])
TABLE, MASKS = _rows(-1), _rows(0)
#: Triplets beyond the counts of all slots lead from a spare row to a spare row.
PAIRS = Padding(
    lambda _, room, n_out: [room.triplets, room.triplets, None],
    lambda _, room, n_out: [{"spare": room.n_in - 1}, {"spare": room.n_out - 1}, {}],
)
#: The range of a spare row is empty.
ROWS_CSR = Padding(
    lambda _, room, n_out: [room.triplets, room.triplets, room.n_out + 1],
    lambda layout, *_: [{}, {}, {"spare": layout[0].shape[0]}],
)
STEPS = Padding(_lengths_of_steps, _spare_steps)

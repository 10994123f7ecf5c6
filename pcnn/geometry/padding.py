"""Layouts in tensors of fixed size, which take one map after another.

What a map has less than there is room for is spare: no product reads it, or it reads zeros and adds
them to spare rows. A spare row of an output is written as 0 where its layout lists every row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry.block_layouts import Layout
from pcnn.geometry.slot_tiles import TILE_ROWS

#: Tensors of fixed size, or parts of them, and what is to be copied there.
Copies = list[tuple[Tensor, Tensor]]


class Room(NamedTuple):
    """Sizes of a map's tensors, seen from one side.

    Args:
        n_in: input rows.
        n_out: output rows, a multiple of `TILE_ROWS`; at least one row of either side is spare.
        triplets: of the map.
    """

    n_in: int
    n_out: int
    triplets: int


class Padding(NamedTuple):
    """How one kind of layout lies in tensors of fixed size.

    Args:
        make: tensors for layouts like this one, of a map with so many output rows.
        fill: writes what is spare, and says what is to be copied; arguments as of `make`, after the
            tensors.
    """

    make: Callable[[Layout, Room, int], Layout]
    fill: Callable[[Layout, Layout, Room, int], Copies]


def _same(layout: Layout, room: Room, n_out: int) -> Layout:
    return layout


def _nothing(own: Layout, layout: Layout, room: Room, n_out: int) -> Copies:
    return []


def _cloned(layout: Layout, room: Room, n_out: int) -> Layout:
    return tuple(tensor.clone() for tensor in layout)


def _copied(own: Layout, layout: Layout, room: Room, n_out: int) -> Copies:
    return list(zip(own, layout, strict=True))


def _rows(layout: Layout, room: Room, n_out: int) -> Layout:
    return tuple(tensor.new_empty(room.n_out, *tensor.shape[1:]) for tensor in layout)


def _fill_rows(empty: int) -> Callable[[Layout, Layout, Room, int], Copies]:
    def fill(own: Layout, layout: Layout, room: Room, n_out: int) -> Copies:
        for tensor in own:
            tensor[n_out:].fill_(empty)
        return [(tensor[:n_out], rows) for tensor, rows in zip(own, layout, strict=True)]

    return fill


def _pairs(layout: Layout, room: Room, n_out: int) -> Layout:
    in_index, _, offsets = layout
    listed = in_index.new_empty(2, rounded_to_sixteen_bytes(room.triplets))[:, : room.triplets]
    return *listed.unbind(), offsets.clone()


def _fill_pairs(own: Layout, layout: Layout, room: Room, n_out: int) -> Copies:
    """Triplets beyond the counts of all slots lead from a spare row to a spare row."""
    in_index, out_index, offsets = own
    triplets = layout[0].shape[0]
    in_index[triplets:].fill_(room.n_in - 1)
    out_index[triplets:].fill_(room.n_out - 1)
    listed = (in_index[:triplets], layout[0]), (out_index[:triplets], layout[1])
    return [*listed, (offsets, layout[2])]


def _tiles(layout: Layout, room: Room, n_out: int) -> Layout:
    sections = layout[0].shape[0] // _tiles_of(n_out)
    tiles = sections * _tiles_of(room.n_out)
    return tuple(tensor.new_zeros(tiles, *tensor.shape[1:]) for tensor in layout)


def _fill_tiles(own: Layout, layout: Layout, room: Room, n_out: int) -> Copies:
    """Spare tiles fill no slot. Of a map in one section they hold the spare rows."""
    tiles, out = layout[0].shape[0], layout[0]
    own_out, _, own_counts, _ = own
    own_counts[tiles:].zero_()
    if tiles == _tiles_of(n_out):  # the spare places of all tiles are the last ones of one of them
        first = (tiles - 1) * TILE_ROWS
        places = torch.arange(first, room.n_out, dtype=out.dtype, device=out.device)
        places = places.view(-1, TILE_ROWS)
        own_out[tiles:].copy_(places[1:])
        out = torch.where(out < 0, places[0], out)
    else:
        own_out[tiles:].fill_(-1)
    copies = zip(own, (out, *layout[1:]), strict=True)
    return [(tensor[:tiles], listed) for tensor, listed in copies]


def _tiles_of(rows: int) -> int:
    return -(-rows // TILE_ROWS)


def rounded_to_sixteen_bytes(integers: int) -> int:
    """So many int32 and a few more, such that what follows begins at a multiple of 16 bytes."""
    return -(-integers // 4) * 4


#: A layout that belongs to the kernel and not to the map.
CONSTANT = Padding(_same, _nothing)
#: A layout with as many numbers as the kernel has slots.
BY_SLOT = Padding(_cloned, _copied)
#: Layouts by output row, with what stands in a row without triplets.
TABLE, MASKS = Padding(_rows, _fill_rows(-1)), Padding(_rows, _fill_rows(0))
PAIRS = Padding(_pairs, _fill_pairs)
TILES = Padding(_tiles, _fill_tiles)

"""Layouts in tensors of fixed size, which take one map after another.

Room that a map does not fill is spare: no product reads it, or it reads zeros and adds them to
spare rows. A spare row of an output is written as 0 where its layout lists every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry.block_layouts import Layout
from pcnn.geometry.row_lists import stored_steps
from pcnn.geometry.slot_tiles import TILE_ROWS

#: Beyond the steps that any memory holds.
BEYOND = (1 << 31) - 1


class Part(NamedTuple):
    """A tensor of fixed size, and what it takes."""

    own: Tensor  # contiguous, at least as many numbers as source
    source: Tensor  # what is copied to its beginning, of the same dtype
    spare: float | None = None  # what is written behind that; None: nothing
    first: int | None = None  # of the output rows of tiles
    listed: int | None = None  # of the first steps of tiles, [tiles + 1]: steps that are stored


class MapRoom(NamedTuple):
    """Sizes of a map's tensors, seen from one side."""

    n_in: int  # input rows
    n_out: int  # output rows, a multiple of TILE_ROWS; at least one row of either side is spare
    triplets: int  # of the map


class Padding(NamedTuple):
    """How one kind of layout lies in tensors of fixed size."""

    make: Callable[[Layout, MapRoom, int], Layout]  # tensors for layouts like this one
    parts: Callable[[Layout, Layout, MapRoom, int], list[Part]]


def place_in_torch(parts: Iterable[Part]) -> None:
    """Copy and write all parts; those without memory (on the meta device) are left out."""
    for own, source, spare, first, listed in parts:
        if own.device.type == "meta":
            continue
        flat, values = own.view(-1), source.reshape(-1)
        if listed is not None:
            values = torch.where(values > listed, BEYOND, values)
            flat[len(values) :].copy_(values[-1:].expand(len(flat) - len(values)))
        elif first is not None:
            places = torch.arange(len(flat), dtype=own.dtype, device=own.device)
            there = first + places[: len(values)] % TILE_ROWS
            flat[len(values) :].copy_(places[len(values) :])
            values = torch.where(values < 0, there, values)
        elif spare is not None:
            flat[len(values) :].fill_(spare)
        flat[: len(values)].copy_(values)


def _same(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    return layout


def _nothing(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
    return []


def _cloned(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    return tuple(tensor.clone() for tensor in layout)


def _copied(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
    return list(map(Part, own, layout))


def _rows(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    return tuple(tensor.new_empty(room.n_out, *tensor.shape[1:]) for tensor in layout)


def _filled_with(empty: int) -> Callable[[Layout, Layout, MapRoom, int], list[Part]]:
    def parts(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
        return [Part(tensor, rows, empty) for tensor, rows in zip(own, layout, strict=True)]

    return parts


def _pairs(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    in_index, _, offsets = layout
    listed = in_index.new_empty(2, rounded_to_sixteen_bytes(room.triplets))[:, : room.triplets]
    return *listed.unbind(), offsets.clone()


def _parts_of_pairs(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
    """Triplets beyond the counts of all slots lead from a spare row to a spare row."""
    spare = room.n_in - 1, room.n_out - 1, None
    return list(map(Part, own, layout, spare))


def _tiles(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    sections = layout[0].shape[0] // _tiles_of(n_out)
    tiles = sections * _tiles_of(room.n_out)
    return tuple(tensor.new_zeros(tiles, *tensor.shape[1:]) for tensor in layout)


def _parts_of_tiles(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
    """Spare tiles fill no slot. Of a map in one section they hold the spare rows."""
    out, slots, counts, rows = map(Part, own, layout)
    tiles = layout[0].shape[0]
    if tiles == _tiles_of(n_out):
        out = out._replace(first=(tiles - 1) * TILE_ROWS)
    else:
        out = out._replace(spare=-1)
    return [out, slots, counts._replace(spare=0), rows]


def _rows_csr(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    in_index, slots, offsets = layout
    listed = in_index.new_empty(room.triplets), slots.new_empty(room.triplets)
    return *listed, offsets.new_empty(room.n_out + 1)


def _parts_of_rows_csr(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
    """The range of a spare row is empty."""
    spare = None, None, layout[0].shape[0]
    return list(map(Part, own, layout, spare))


def _row_lists(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    out, starts, first_steps, slots, rows, in_index = layout
    tiles = _tiles_of(room.n_out)
    steps = stored_steps(room.triplets, tiles, starts.shape[1] - 1)
    return (
        *(tensor.new_empty(tiles, *tensor.shape[1:]) for tensor in (out, starts)),
        first_steps.new_empty(tiles + 1),
        *(tensor.new_empty(steps, *tensor.shape[1:]) for tensor in (slots, rows)),
        in_index.new_empty(room.triplets),
    )


def _parts_of_row_lists(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
    """Spare tiles hold the spare rows and take no steps."""
    out, starts, first_steps, slots, rows, in_index = map(Part, own, layout)
    return [
        out._replace(first=max(0, layout[0].shape[0] - 1) * TILE_ROWS),
        starts._replace(spare=0),
        first_steps._replace(listed=layout[3].shape[0]),
        *(slots, rows, in_index),
    ]


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
TABLE, MASKS = Padding(_rows, _filled_with(-1)), Padding(_rows, _filled_with(0))
PAIRS = Padding(_pairs, _parts_of_pairs)
ROWS_CSR = Padding(_rows_csr, _parts_of_rows_csr)
ROW_LISTS = Padding(_row_lists, _parts_of_row_lists)
TILES = Padding(_tiles, _parts_of_tiles)

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
    """How one kind of layout lies in tensors of fixed size."""

    make: Callable[[Layout, MapRoom, int], Layout]  # tensors for layouts like this one
    parts: Callable[[Layout, Layout, MapRoom, int], list[Part]]


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


def _steps(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    sections = layout[0].shape[0] // max(1, _tiles_of(n_out))
    tiles = sections * _tiles_of(room.n_out)
    if len(layout) > 5:
        steps = stored_steps(room.triplets, tiles, layout[5].shape[1] - 1)
    else:
        steps = tiles * -(-layout[3].shape[0] // max(1, layout[0].shape[0]))
    lengths = tiles, tiles, tiles, steps, steps, tiles, room.triplets
    return tuple(
        tensor.new_zeros(length, *tensor.shape[1:])
        for tensor, length in zip(layout, lengths, strict=False)
    )


def _parts_of_steps(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
    """Spare tiles take no step. Of a map in one section they hold the spare rows."""
    out, begin, end, slot, rows, *ranges = map(Part, own, layout)
    if ranges:
        ranges[0] = ranges[0]._replace(spare=0)
    tiles = layout[0].shape[0]
    if tiles == _tiles_of(n_out):
        out = out._replace(first=max(0, tiles - 1) * TILE_ROWS)
    else:
        out = out._replace(spare=-1)
    return [out, begin._replace(spare=BEYOND), end._replace(spare=BEYOND), slot, rows, *ranges]


def _rows_csr(layout: Layout, room: MapRoom, n_out: int) -> Layout:
    in_index, slots, offsets = layout
    listed = in_index.new_empty(room.triplets), slots.new_empty(room.triplets)
    return *listed, offsets.new_empty(room.n_out + 1)


def _parts_of_rows_csr(own: Layout, layout: Layout, room: MapRoom, n_out: int) -> list[Part]:
    """The range of a spare row is empty."""
    spare = None, None, layout[0].shape[0]
    return list(map(Part, own, layout, spare))


def _tiles_of(rows: int) -> int:
    return -(-rows // TILE_ROWS)


def rounded_to_sixteen_bytes(integers: int) -> int:
    """So many int32 and a few more, such that what follows begins at a multiple of 16 bytes."""
    return -(-integers // 4) * 4


#: A layout with as many numbers as the kernel has slots.
BY_SLOT = Padding(_cloned, _copied)
#: Layouts by output row, with what stands in a row without triplets.
TABLE, MASKS = Padding(_rows, _filled_with(-1)), Padding(_rows, _filled_with(0))
PAIRS = Padding(_pairs, _parts_of_pairs)
ROWS_CSR = Padding(_rows_csr, _parts_of_rows_csr)
STEPS = Padding(_steps, _parts_of_steps)

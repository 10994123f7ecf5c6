"""A buffer of gathered rows, every slot padded to the longest of its group, and its products.

Products are torch's own matrix multiplication, one call a group of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from pcnn.dataflows.grouping import Grouping
from pcnn.dataflows.torch_sums import reduced_product


@dataclass(frozen=True)
class Block:
    """Slots that are multiplied by one call, one after another in the buffer."""

    slots: tuple[int, ...]  # in the order of the buffer
    weights: tuple[int, ...]  # the matrix every slot multiplies, ascending
    start: int  # first row of the block
    rows: int  # rows of every slot, padding included

    @property
    def end(self) -> int:
        """One past the last row of the block."""
        return self.start + len(self.slots) * self.rows


@dataclass(frozen=True)
class PaddedBuffer:
    """Rows of all slots: those of slot k at ``offsets[k] + shifts[k]`` and after."""

    offsets: tuple[int, ...]  # [K + 1], triplets of slot k are offsets[k]..offsets[k + 1] of pairs
    shifts: tuple[int, ...]  # [K], buffer row of a slot's triplet less its position in pairs
    blocks: tuple[Block, ...]  # what is gathered and multiplied
    gathered: int  # rows of all blocks
    #: the slot that is multiplied without gathering: its rows are those of the features
    identity: Block | None

    @property
    def products(self) -> tuple[Block, ...]:
        """All that is multiplied; the identity comes last."""
        return self.blocks if self.identity is None else (*self.blocks, self.identity)

    @property
    def rows(self) -> int:
        """Rows of all products."""
        return self.gathered if self.identity is None else self.identity.end


def padded_buffer(
    offsets: tuple[int, ...], grouping: Grouping, identity: int, mirrored: bool
) -> PaddedBuffer:
    """Place the slots of every group one after another, each padded to the longest."""
    volume = len(offsets) - 1
    sizes = [end - start for start, end in pairwise(offsets)]
    shifts, blocks, start = [0] * volume, [], 0
    for group in grouping.groups(sizes, identity):
        slots = group.slots[::-1] if mirrored else group.slots
        weights = tuple(volume - 1 - k if mirrored else k for k in slots)
        blocks.append(Block(slots, weights, start, group.rows))
        for number, slot in enumerate(slots):
            shifts[slot] = start + number * group.rows - offsets[slot]
        start = blocks[-1].end
    apart = None
    if identity >= 0:
        shifts[identity] = start - offsets[identity]
        weight = volume - 1 - identity if mirrored else identity
        apart = Block((identity,), (weight,), start, sizes[identity])
    return PaddedBuffer(offsets, tuple(shifts), tuple(blocks), start, apart)


@dataclass(frozen=True)
class Placement:
    """A padded buffer, and what kernels read of it."""

    place: PaddedBuffer  # the buffer
    shifts: Tensor  # place.shifts on the device, [K] int64
    order: Tensor  # the matrix of every slot of the products, [S] int64 on the device

    @cached_property
    def padding(self) -> Tensor:
        """``[P]`` int64, the rows that belong to no triplet, on the device."""
        moved, counts, total, place = [], [], 0, self.place
        for block in place.blocks:
            for number, slot in enumerate(block.slots, 1):
                first = place.offsets[slot + 1] + place.shifts[slot]
                counts.append(block.start + number * block.rows - first)
                moved.append(first - total)
                total += counts[-1]
        before, sizes = upload([moved, counts], self.shifts.device)
        rows = torch.arange(total, device=self.shifts.device)
        return rows.add_(before.repeat_interleave(sizes, output_size=total))

    def matrices(self, all_matrices: Tensor) -> list[Tensor]:
        """The matrices ``[S, ...]`` of every product, of those of all slots ``[K, ...]``."""
        sizes = [len(block.slots) for block in self.place.products]
        return list(all_matrices.index_select(0, self.order).split(sizes))


#: By the offsets of a map: they are freed with it, and so are its placements.
_KEPT = WeakIdKeyDictionary()


def placement(
    offsets: Tensor, grouping: Grouping, identity: int, mirrored: bool, device: torch.device
) -> Placement:
    """The placement of a map's slots, made at the first request."""
    kept: dict[object, Placement] | None = _KEPT.get(offsets)
    if kept is None:
        kept = _KEPT[offsets] = {}
    key = grouping, identity, mirrored, device
    found = kept.get(key)
    if found is None:
        place = padded_buffer(tuple(offsets.tolist()), grouping, identity, mirrored)
        weights = [weight for block in place.products for weight in block.weights]
        found = kept[key] = Placement(place, upload(place.shifts, device), upload(weights, device))
    return found


def upload(numbers: object, device: torch.device) -> Tensor:
    """A few integers as int64 on a device; the host does not wait for the copy."""
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)


def multiply_slots(
    gathered: Tensor, first: int, matrices: Tensor, products: Tensor, place: int, rows: int
) -> None:
    """``products = gathered @ matrices`` for some slots of equal length."""
    count = matrices.shape[0]
    if matrices.ndim == 3:
        if count == 1:
            out = products.narrow(0, place, rows)
            torch.mm(gathered.narrow(0, first, rows), matrices[0], out=out)
        else:
            left = _slots(gathered, first, count, rows)
            torch.bmm(left, matrices, out=_slots(products, place, count, rows))
        return
    groups, _, width = matrices.shape[1:]
    left = _by_group(gathered[first : first + count * rows], count, groups)  # [S * G, R, A]
    right = matrices.flatten(0, 1)  # [S * G, A, C]
    found = products.new_empty(count * groups, rows, width)
    torch.bmm(left, right, out=found)  # which autocast leaves alone
    found = found.unflatten(0, (count, groups)).transpose(1, 2)
    _slots(products, place, count, rows).unflatten(2, (groups, width)).copy_(found)


def _slots(buffer: Tensor, first: int, count: int, rows: int) -> Tensor:
    """``[S, R, C]`` of the rows of S slots in a contiguous buffer, in one call."""
    width = buffer.shape[1]
    start = buffer.storage_offset() + first * width
    return buffer.as_strided((count, rows, width), (rows * width, width, 1), start)


def reduce_block(
    operands: Sequence[Tensor], block: Block, groups: int, parts: list[Tensor]
) -> None:
    """``parts[k] = left[slot]^T @ right[slot]`` for the slots of one block."""
    left, right = (_by_group(side, len(block.slots), groups) for side in operands)
    found = reduced_product(left, right, parts[0].dtype)
    found = found.unflatten(0, (len(block.slots), groups))
    for k, part in zip(block.weights, found.unbind(), strict=True):
        parts[k] = part


def _by_group(buffer: Tensor, count: int, groups: int) -> Tensor:
    """``[S * G, R, A]`` of ``[S * R, G * A]``; a view where there is one group."""
    shape = count, buffer.shape[0] // count, groups, buffer.shape[1] // groups
    return buffer.view(shape).transpose(1, 2).flatten(0, 1)

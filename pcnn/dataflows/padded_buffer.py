"""Where the rows of every slot lie in one buffer, whose slots of a group are padded alike."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pcnn.dataflows.grouping import Grouping


@dataclass(frozen=True)
class Block:
    """Slots that are multiplied by one call, one after another in the buffer.

    Args:
        slots: in the order of the buffer.
        weights: the matrix every slot multiplies, ascending.
        start: first row of the block.
        rows: rows of every slot, padding included.
    """

    slots: tuple[int, ...]
    weights: tuple[int, ...]
    start: int
    rows: int

    @property
    def end(self) -> int:
        """One past the last row of the block."""
        return self.start + len(self.slots) * self.rows

    def take(self, matrices: Tensor) -> Tensor:
        """``[S, ...]`` of ``[K, ...]``: a view where the weights are evenly spaced, else a copy."""
        first, last = self.weights[0], self.weights[-1]
        if len(self.weights) == 1:
            return matrices[first : first + 1]
        step = self.weights[1] - first
        if self.weights == tuple(range(first, last + 1, step)):
            return matrices[first : last + 1 : step]
        return torch.stack([matrices[k] for k in self.weights])  # one launch, no index to upload


@dataclass(frozen=True)
class PaddedBuffer:
    """Rows of all slots: those of slot k at ``offsets[k] + shifts[k]`` and after.

    Args:
        offsets: ``[K + 1]``, triplets of slot k are ``offsets[k]..offsets[k + 1]`` of ``pairs``.
        shifts: ``[K]``, buffer row of a slot's triplet less its position in ``pairs``.
        blocks: what is gathered and multiplied.
        gathered: rows of all blocks.
        identity: the slot that is multiplied without gathering, -1 if there is none. Its products
            follow those of the blocks.
        identity_weight: the matrix that it multiplies.
    """

    offsets: tuple[int, ...]
    shifts: tuple[int, ...]
    blocks: tuple[Block, ...]
    gathered: int
    identity: int
    identity_weight: int

    @property
    def rows(self) -> int:
        """Rows of all products, those of the identity included."""
        return self.gathered + (self.size(self.identity) if self.identity >= 0 else 0)

    def size(self, slot: int) -> int:
        """Triplets of a slot."""
        return self.offsets[slot + 1] - self.offsets[slot]

    def first(self, slot: int) -> int:
        """Buffer row of the first triplet of a slot."""
        return self.offsets[slot] + self.shifts[slot]

    def identity_blocks(self) -> tuple[Block, ...]:
        """The identity as a block of its own, whose rows are those of the features; or nothing."""
        if self.identity < 0:
            return ()
        size = self.size(self.identity)
        return (Block((self.identity,), (self.identity_weight,), 0, size),)

    def padding(self) -> list[tuple[int, int]]:
        """First and one-past-last row of every range that belongs to no triplet."""
        ranges = []
        for block in self.blocks:
            for number, slot in enumerate(block.slots):
                first = self.first(slot) + self.size(slot)
                last = block.start + (number + 1) * block.rows
                if first < last:
                    ranges.append((first, last))
        return ranges


@functools.lru_cache(maxsize=1024)
def padded_buffer(
    offsets: tuple[int, ...], grouping: Grouping, identity: int, mirrored: bool
) -> PaddedBuffer:
    """Place the slots of every group one after another, each padded to the longest.

    Args:
        offsets: ``[K + 1]``.
        grouping: which slots share a block.
        identity: slot that is multiplied without gathering, -1 for none.
        mirrored: slot k multiplies matrix ``K - 1 - k``; a block's matrices ascend all the same.
    """
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
    if identity >= 0:
        shifts[identity] = start - offsets[identity]
    weight = volume - 1 - identity if mirrored else identity
    return PaddedBuffer(offsets, tuple(shifts), tuple(blocks), start, identity, weight)

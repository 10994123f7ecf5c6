"""Triplets of blocks of output rows, brought into the order of layout ``bags`` on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.geometry.layouts import Layout
from pcnn.maps.cell_runs import Integers


class BlockBags(NamedTuple):
    """Bags of one block of output rows, by slot, then row.

    Args:
        in_index: ``[T]`` int32.
        sizes: ``[S]`` int32, inputs of every bag.
        rows: ``[S]`` int32, its output row, counted from the block's first.
        by_row: ``[S]`` int32, bags sorted by row, then slot.
        row_bags: ``[rows]``, bags of every row.
        slot_bags: ``[K]``, bags of every slot.
    """

    in_index: NDArray[np.int32]
    sizes: NDArray[np.int32]
    rows: NDArray[np.int32]
    by_row: NDArray[np.int32]
    row_bags: Integers
    slot_bags: Integers

    @classmethod
    def of(
        cls,
        hits: Sequence[tuple[Integers, NDArray[np.int32], NDArray[np.int32]]],
        rows: int,
        volume: int,
    ) -> BlockBags:
        """Sort triplets that lie by row, then input.

        Args:
            hits: parts of (rows counted from the block's first, input points, slots).
            rows: of the block.
            volume: kernel slots K.
        """
        none = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)
        row, point, slot = (np.concatenate(part) for part in zip(none, *hits, strict=True))
        # numbers of 16 bits are sorted by their digits
        short = slot.astype(np.uint16) if volume <= 1 << 16 else slot
        order = np.argsort(short, kind="stable")
        code = (slot.astype(np.int64) * rows + row).take(order)
        fresh = np.flatnonzero(code[1:] != code[:-1]) + 1
        first = np.concatenate(([0], fresh)) if len(code) else fresh
        sizes = np.diff(first, append=len(code)).astype(np.int32)
        bag_slot, bag_row = np.divmod(code.take(first), rows)
        by_row = np.argsort(bag_row.astype(np.uint16), kind="stable").astype(np.int32)
        row_bags = np.bincount(bag_row, minlength=rows)
        slot_bags = np.bincount(bag_slot, minlength=volume)
        in_index = point.take(order)
        return cls(in_index, sizes, bag_row.astype(np.int32), by_row, row_bags, slot_bags)


def joined(
    blocks: Sequence[BlockBags], in_index: NDArray[np.int32] | None, volume: int, block_rows: int
) -> Layout:
    """Layout ``bags`` of blocks that follow each other.

    Args:
        blocks: of ``block_rows`` output rows each, the last one of what is left.
        in_index: ``[T]`` int32, where their inputs lie already; ``None``: they are copied.
        volume: kernel slots K.
        block_rows: output rows of a block.
    """
    none = np.zeros(0, np.int32)
    if in_index is None:
        in_index = np.concatenate([none, *(block.in_index for block in blocks)])
    sizes = np.concatenate([none, *(block.sizes for block in blocks)])
    bags = np.cumsum([0, *(len(block.sizes) for block in blocks)])
    out = [block.rows + number * block_rows for number, block in enumerate(blocks)]
    by_row = [block.by_row + first for block, first in zip(blocks, bags, strict=False)]
    row_bags = np.concatenate([none, *(block.row_bags for block in blocks)])
    counts = np.stack([np.zeros(volume, np.int64), *(block.slot_bags for block in blocks)])[1:]
    ends = counts.ravel().cumsum()
    block, slot = np.divmod(np.arange(counts.size), volume)
    segments = np.stack((block, slot, ends - counts.ravel(), ends), 1)[counts.ravel() > 0]
    return (
        torch.from_numpy(in_index),
        _ends(sizes),
        torch.from_numpy(np.concatenate([none, *out]).astype(np.int32)),
        torch.from_numpy(np.concatenate([none, *by_row]).astype(np.int32)),
        _ends(row_bags),
        torch.from_numpy(segments),
        torch.tensor([volume, block_rows]),
    )


def _ends(sizes: NDArray[np.int32]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(([0], sizes.cumsum(dtype=np.int64))))

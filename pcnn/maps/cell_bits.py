"""Sites of all coarse levels of a network from bitmaps of their cells, without a sort.

A bit stands for every cell of the box that a level takes, in the order of packed keys. So set bits
are sites in their order, and a site's row is the number of bits before its own: three launches,
where a sort takes one for every eight bits of a key. Boxes have to be small enough: a bit costs as
much whether its cell holds a site or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import HALF, MAX_BATCH
from pcnn.geometry.voxel_grid import Box, VoxelGrid, cells_along
from pcnn.kernels import cuda
from pcnn.kernels.streams import page_locked, wait_for
from pcnn.kernels.structs import packer
from pcnn.maps.levels import MAX_LEVELS, Levels

SOURCE = "cell_bits.cu"

_THREADS, _SPAN = 256, 16
_CHUNK = _THREADS * _SPAN

#: Words that bitmaps may take: so many at least, and so many for every row of the finest level.
#: Clearing and reading them then takes no longer than a sort would.
LEAST_WORDS, WORDS_PER_ROW = 1 << 22, 128
#: A bit of a level is a 32-bit number.
_MOST_WORDS = 1 << 27


def bitmap_words(box: Box, clouds: int, strides: Sequence[Triple]) -> int:
    """Words of 32 bits that the bitmaps of several levels take."""
    found = 0
    for stride in strides:
        cells = clouds * math.prod(cells_along(box, stride))
        found += -(-cells // (32 * _CHUNK)) * _CHUNK
    return found


def fitting_words(words: int, rows: int, headroom: float = 1.0) -> int:
    """Words of room for bitmaps that take so many; 0 where levels are sorted."""
    if words > max(LEAST_WORDS, WORDS_PER_ROW * rows):
        return 0
    room = -int(-words * headroom // _CHUNK) * _CHUNK
    return room if room <= _MOST_WORDS else 0


@dataclass(frozen=True)
class CellBits:
    """Memory of bitmaps, all zero where `sites` finds it."""

    marks: Tensor  # the bits, then a word for every chunk of them, and one more
    words: int  # of the bits, a multiple of those of a chunk

    @classmethod
    def of(cls, words: int, device: torch.device, cleared: bool = False) -> CellBits:
        """Memory for so many words."""
        make = torch.zeros if cleared else torch.empty
        return cls(make(words + words // _CHUNK + 1, dtype=torch.int32, device=device), words)

    def sites(
        self,
        keys: Tensor,  # [N] int64 packed keys of the finest sites
        count: Tensor,  # [1] int32, how many of them count
        extent: Tensor,
        strides: Sequence[Triple],
        clouds: int,
        rooms: Sequence[int],
        counts: Tensor,  # [L] int32 for the numbers of sites: 0 where the cloud does not fit
        needed: Tensor,  # [1] int32 for the words that it takes
        whole: bool = False,
    ) -> Levels:
        """Launch what finds the sites of several levels; see `pcnn.maps.levels.unique_sites`."""
        levels, n, device = len(strides), keys.shape[0], keys.device
        sites = torch.empty(levels, n, dtype=torch.int64, device=device)
        first, inverse = torch.empty(2, levels, n, dtype=torch.int32, device=device).unbind()
        box = count.data_ptr(), extent.data_ptr(), b""
        written = [one.data_ptr() for one in (needed, sites, first, inverse)]
        self.launch(keys, strides, clouds, rooms, box, (*written, 0, counts.data_ptr()))
        return Levels(sites, first, inverse, counts, first.new_empty(0), whole)

    def launch(
        self,
        keys: Tensor,
        strides: Sequence[Triple],
        clouds: int,
        rooms: Sequence[int],
        box: tuple[int, int, bytes],  # addresses of count and extent, or 0, and the known extent
        written: Sequence[int],  # addresses, as in the source
    ) -> None:
        """Launch the three kernels."""
        levels, n, device = len(strides), keys.shape[0], keys.device
        if levels > MAX_LEVELS:
            raise ValueError(f"bitmaps take at most {MAX_LEVELS} levels, got {levels}: {strides}")
        base, words, blocks = self.marks.data_ptr(), self.words, -(-n // _THREADS)
        ranks = torch.empty(words // _SPAN, dtype=torch.int32, device=device)
        marks = base, base + 4 * words, base + 4 * (words + words // _CHUNK), ranks.data_ptr()
        stride = packer(SOURCE, "Stride")
        arguments = packer(SOURCE, "BitsArguments")(
            *(keys.data_ptr(), *box[:2], *marks, *written, box[2]),
            *(n, words, clouds, levels, b"".join([stride(*one) for one in strides])),
            *(*rooms, *[0] * (MAX_LEVELS - levels)),
        )
        module = cuda.module(SOURCE, device)
        module.run("mark_cells", blocks, arguments)
        module.run("count_bits", words // _CHUNK, arguments)
        module.run("rows_of_cells", levels * blocks, arguments)


def sites_in_box(grid: VoxelGrid, stride: Triple) -> tuple[Tensor, Tensor] | None:
    """Sites of one level of a grid, and the row above every fine one; the host waits once.

    ``None`` where they are sorted: bitmaps take too much, or the grid's box does not hold it.
    """
    n, device, clouds, (low, high) = grid.rows, grid.device, grid.batch_size, grid.extent
    words = fitting_words(bitmap_words(grid.extent, clouds, [stride]), n)
    if not words:
        return None
    sites, above = torch.empty(2, n, dtype=torch.int64, device=device).unbind()
    seen = page_locked(2, device).zero_()
    largest = clouds, *[HALF + 1 + end for end in high]
    known = packer(SOURCE, "Extent")(*largest, MAX_BATCH + 1, *[HALF - end for end in low], 0)
    at, written = seen.data_ptr(), (sites.data_ptr(), 0, 0, above.data_ptr())
    marks = CellBits.of(words, device, cleared=True)
    marks.launch(grid.keys, [stride], clouds, [n], (0, 0, known), (at + 4, *written, at))
    wait_for(device)
    rows, outside = seen.tolist()
    return None if outside else (sites[:rows], above)

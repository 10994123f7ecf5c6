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
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.voxel_grid import Box, cells_along
from pcnn.kernels import cuda
from pcnn.maps.levels import MAX_LEVELS, Levels

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
    def of(cls, words: int, device: torch.device) -> CellBits:
        """Memory for so many words, which is not cleared."""
        marks = words + words // _CHUNK + 1
        return cls(torch.empty(marks, dtype=torch.int32, device=device), words)

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
        if levels > MAX_LEVELS:
            raise ValueError(f"bitmaps take at most {MAX_LEVELS} levels, got {levels}: {strides}")
        sites = torch.empty(levels, n, dtype=torch.int64, device=device)
        first, inverse = torch.empty(2, levels, n, dtype=torch.int32, device=device).unbind()
        ranks = torch.empty(self.words // _SPAN, dtype=torch.int32, device=device)
        given: dict[str, Any] = {
            "keys": keys,
            "count": count,
            "extent": extent,
            "bits": self.marks,
            "status": self.marks[self.words :],
            "ticket": self.marks[-1:],
            "ranks": ranks,
            "needed": needed,
            "unique_keys": sites,
            "first": first,
            "inverse": inverse,
            "counts": counts,
            "n": n,
            "words": self.words,
            "clouds": clouds,
            "levels": levels,
            "strides": [(stride,) for stride in strides],
            "rooms": rooms,
        }
        module = cuda.module("cell_bits.cu", device)
        blocks = -(-n // _THREADS)
        module.launch("mark_cells", blocks, **given)
        module.launch("count_bits", self.words // _CHUNK, **given)
        module.launch("rows_of_cells", levels * blocks, **given)
        return Levels(sites, first, inverse, counts, first.new_empty(0), whole)

"""Launching a search of packed keys: key widths, tiles, and what the kernel writes.

`ZDelta` and `BinarySearch` share this file; they differ in the kernel that finds a slot.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KeyFormat, VoxelGrid
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.layouts import mask_words
from pcnn.geometry.voxel_grid import Box, joint_box
from pcnn.kernels.cuda import module

#: Layouts of `csrc/packed_search.cuh`.
TABLE, TRANSPOSED, HYBRID, HALF_TABLE = range(4)

#: Bits of ``key_bits="auto"``. Keys of 64 bits exist already; narrower ones cost a kernel.
AUTO_BITS = 64

#: Output rows of a tile; a multiple of a warp.
FEWEST_ROWS, MOST_TABLE_ROWS, MOST_ROWS = 32, 128, 1024

#: Tiles below which halving them fills the device better than it costs.
FEW_TILES = 512

#: Chunks of rows whose counts one pass scans quickly.
MANY_CHUNKS = 1024

#: Shared memory of a tile of the table [bytes]: eight blocks leave half of an SM's to the L1 cache.
TILE_BYTES = 16 << 10
#: The same where one row of 32 is larger than that, and the most that any device of today grants.
LARGE_TILE_BYTES, SHARED_BYTES = 48 << 10, 96 << 10

#: Threads of a block of ``narrow_keys``.
NARROW_THREADS = 256

ARGUMENTS = struct.Struct("9P6q33i0q")
NARROW_ARGUMENTS = struct.Struct("2Pq11i0q")


@dataclass(frozen=True)
class Search:
    """A way of searching."""

    kernel: str  # name of the kernel, and of its source without .cu
    grouped: bool  # whether the K_z slots of equal (x, y) share one binary search
    key_bits: int | str = "auto"  # 64, 32, or auto
    rows: int | None = None  # output rows of a tile, a power of two times 32; None picks by size

    def __post_init__(self) -> None:
        if self.key_bits not in (32, 64, "auto"):
            raise ValueError(
                f"{self.kernel}: key_bits must be 32, 64 or auto, got {self.key_bits!r}"
            )
        rows = self.rows
        if rows is not None and (rows < FEWEST_ROWS or rows > MOST_ROWS or rows & (rows - 1)):
            raise ValueError(
                f"{self.kernel}: rows of a tile must be a power of two from {FEWEST_ROWS} to "
                f"{MOST_ROWS}, got {rows}"
            )

    @property
    def bits(self) -> int:
        """Width of the keys that are compared."""
        return AUTO_BITS if self.key_bits == "auto" else int(self.key_bits)


class Found(NamedTuple):
    """Where a search writes; ``None`` is not written."""

    table: Tensor | None = None  # [N_out, columns] int32
    transposed: Tensor | None = None  # [slots, N_out] int32
    masks: Tensor | None = None  # [N_out, ceil(K / 31)] int32
    counts: Tensor | None = None  # [K] int64, zeros
    tile_counts: Tensor | None = None  # [slots, tiles] int32, triplets of every slot and tile


def chunk_rows(rows: int) -> int:
    """Rows of a chunk where every (slot, chunk) has a count: chunks stay few, but fill a GPU."""
    size = FEWEST_ROWS
    while size < MOST_ROWS and rows > size * MANY_CHUNKS:
        size *= 2
    return size


def table_rows(rows: int, columns: int) -> int:
    """Rows of a tile that passes through shared memory."""
    size = MOST_TABLE_ROWS
    while size > FEWEST_ROWS and (4 * size * columns > TILE_BYTES or rows < size * FEW_TILES):
        size //= 2
    return size


@dataclass(frozen=True)
class NarrowKeys:
    """Fields of the 32-bit keys of a cloud, as wide as its extent takes (Spira, section 5.3)."""

    axis_bits: Triple  # bits of x, y and z, x in the highest ones
    low: Triple  # coordinate along x, y and z whose field is 0

    @classmethod
    def of(cls, box: Box, kernel: Kernel, spacing: Triple) -> NarrowKeys:
        """Fields for a box, and for what a kernel reaches beyond it, in level-0 voxels."""
        low, sizes = [], []
        for axis, (first, last) in enumerate(zip(*box, strict=True)):
            below = kernel.padding[axis]
            above = max(0, (kernel.size[axis] - 1) * kernel.dilation[axis] - below)
            low.append(first - below * spacing[axis])
            sizes.append(last + above * spacing[axis] - low[axis] + 1)
        x, y, z = (max(1, (size - 1).bit_length()) for size in sizes)
        if x + y + z > 32:
            raise ValueError(
                f"32-bit keys: with what the kernel reaches the cloud takes {x} + {y} + {z} bits "
                "of x, y and z"
            )
        return cls((x, y, z), (low[0], low[1], low[2]))

    @property
    def key_format(self) -> KeyFormat:
        """Shifts of the fields, as sums of key deltas take them."""
        return KeyFormat(0, self.axis_bits)

    def fields(self, own: KeyFormat) -> tuple[int, ...]:
        """Shifts and bits of a 64-bit key, what is added to each field, and where it goes."""
        added = (-half - low for half, low in zip(own.half, self.low, strict=True))
        x, y, _ = self.key_format.shifts
        return *own.shifts, *own.axis_bits, *added, x, y


def narrow_keys(
    search: Search, source: VoxelGrid, target: VoxelGrid, kernel: Kernel
) -> NarrowKeys | None:
    """Fields of the 32-bit keys that a search compares; ``None``: those of 64 bits."""
    if search.bits == 64:
        return None
    clouds = source.batch_size
    try:
        if clouds > 1:
            raise ValueError(f"32-bit keys hold one cloud, the batch holds {clouds}")
        box = joint_box([source.extent, target.extent])
        return NarrowKeys.of(box, kernel, source.tensor_stride)
    except ValueError as error:
        raise ValueError(f"{search.kernel}: {error}; use key_bits=64") from None


class Tiling(NamedTuple):
    """How a search is cut into blocks: a tile of outputs, and a chunk of its runs of slots."""

    rows: int  # output rows of a tile
    tiles: int  # number of tiles
    limit: int  # slots searched, from the first
    runs: int  # runs of slots with one binary search each
    chunk_runs: int  # runs of a block
    chunks: int  # blocks of a tile; where there are several they join their masks by atomics
    columns: int  # of the table
    words: int  # of a row's mask
    shared_bytes: int  # shared memory of a block


def tiling(
    search: Search,
    layout: int,
    kernel: Kernel,
    n_out: int,
    rows: int,
    columns: int = 0,
    words: int = 0,
    slots: int | None = None,
) -> Tiling:
    """Cut a search into blocks whose tile of the table fits in shared memory."""
    limit = kernel.volume if slots is None else slots
    run_slots = kernel.size[2] if search.grouped else 1
    runs = chunk_runs = -(-limit // run_slots)
    if layout in (TABLE, HALF_TABLE):
        most = max(1, LARGE_TILE_BYTES // (4 * rows * run_slots))
        chunk_runs = -(-runs // max(1, -(-runs // most)))  # chunks of even length
    width = {TRANSPOSED: 0, HYBRID: columns}.get(layout, chunk_runs * run_slots)
    shared = 4 * (rows * (width + words) + chunk_runs * (4 + run_slots))
    if layout == HYBRID:
        shared += 4 * kernel.volume
    if shared > SHARED_BYTES:
        raise ValueError(
            f"{search.kernel}: {width} slots at once take {shared} bytes of shared memory, a block "
            f"has {SHARED_BYTES}: kernel size {kernel.size} is too long for a table; "
            "ZDelta(product='pairs') serves it"
        )
    chunks = -(-runs // chunk_runs) if runs else 0
    tiles = -(-n_out // rows)
    return Tiling(rows, tiles, limit, runs, chunk_runs, chunks, columns, words, shared)


def run_search(
    search: Search,
    layout: int,
    source: VoxelGrid,
    target: VoxelGrid,
    kernel: Kernel,
    tiles: Tiling,
    found: Found,
    threshold: int = 0,
) -> None:
    """Find the input row of every (output, slot) and write it as ``found`` asks."""
    if max(source.rows, target.rows) >= 1 << 31:
        raise ValueError(f"{search.kernel}: a grid of 2 ** 31 sites or more; split the batch")
    blocks = tiles.tiles * tiles.chunks
    if blocks == 0:
        return
    narrow, own = narrow_keys(search, source, target, kernel), source.key_format
    bits = 64 if narrow is None else 32
    kernels = module(f"{search.kernel}.cu", source.device, KEY_BITS=bits, LAYOUT=layout)
    keys = source.keys
    if narrow is not None:
        keys = torch.empty(source.rows, dtype=torch.int32, device=source.device)
        sides = source.keys.data_ptr(), keys.data_ptr(), source.rows
        asked = NARROW_ARGUMENTS.pack(*sides, *narrow.fields(own))
        kernels.launch("narrow_keys", -(-source.rows // NARROW_THREADS), asked, source.device)
    written = (0 if tensor is None else tensor.data_ptr() for tensor in found)
    arguments = arguments_of(
        kernel,
        source.tensor_stride,
        own,
        (keys.data_ptr(), target.keys.data_ptr(), *written, 0, 0),
        (source.rows, target.rows),
        tiles,
        threshold,
        kernel.volume,
        narrow,
        tiles.chunks > 1 or layout == HALF_TABLE,
    )
    kernels.launch(search.kernel, blocks, arguments, source.device, shared_bytes=tiles.shared_bytes)


def arguments_of(
    kernel: Kernel,
    spacing: Triple,
    own: KeyFormat,
    pointers: Sequence[int],
    rows: tuple[int, int],
    tiles: Tiling,
    threshold: int,
    listed: int,
    narrow: NarrowKeys | None = None,
    join: bool = False,
    fill: bool = False,
) -> bytes:
    """Arguments of a search of one map, as ``csrc/packed_search.cuh`` reads them."""
    n_in, n_out = rows
    return ARGUMENTS.pack(
        *pointers,
        *(n_out, tiles.tiles),
        *kernel.key_steps(spacing, own if narrow is None else narrow.key_format),
        *(n_in, kernel.size[1], kernel.size[2], kernel.volume),
        *(tiles.limit, tiles.rows, (tiles.rows // FEWEST_ROWS).bit_length() - 1),
        *(tiles.runs, tiles.chunk_runs, tiles.chunks),
        *(tiles.columns, tiles.words, listed, int(join), int(fill)),
        min(threshold, (1 << 31) - 1),
        *kernel.dilation,
        *kernel.padding,
        *((0,) * 11 if narrow is None else narrow.fields(own)),
    )


def search_table(
    search: Search, source: VoxelGrid, target: VoxelGrid, kernel: Kernel
) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbour table, row masks and triplets of every slot."""
    rows, volume, device = target.rows, kernel.volume, source.device
    words = mask_words(volume)
    size = search.rows or table_rows(rows, volume)
    tiles = tiling(search, TABLE, kernel, rows, size, volume, words)
    table = torch.empty(rows, volume, dtype=torch.int32, device=device)
    # several chunks join the masks of their row
    masks = (torch.empty if tiles.chunks == 1 else torch.zeros)(
        rows, words, dtype=torch.int32, device=device
    )
    counts = torch.zeros(volume, dtype=torch.int64, device=device)
    found = Found(table, None, masks, counts)
    run_search(search, TABLE, source, target, kernel, tiles, found)
    return table, masks, counts

"""Launching a search of packed keys: key widths, tiles, and what the kernel writes.

`ZDelta` and `BinarySearch` share this file; they differ in the kernel that finds a slot.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KeyLayout, VoxelGrid
from pcnn.geometry.layouts import MASK_BITS
from pcnn.kernels.cuda import module

#: Layouts of `csrc/packed_search.cuh`.
TABLE, TRANSPOSED, HYBRID, HALF_TABLE = range(4)

#: 32-bit keys: one cloud, 12 / 12 / 8 bits of x, y, z (Spira, section 5.3).
NARROW = KeyLayout(batch_bits=0, axis_bits=(12, 12, 8))

#: What ``key_bits="auto"`` means. Keys of 64 bits are there already; narrower ones cost a kernel.
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

ARGUMENTS = struct.Struct("7P6q29i0q")
NARROW_ARGUMENTS = struct.Struct("2Pq9i0q")


@dataclass(frozen=True)
class Search:
    """A way of searching.

    Args:
        kernel: name of the kernel, and of its source without ``.cu``.
        grouped: whether the K_z slots of equal (x, y) share one binary search.
        key_bits: 64, 32, or ``auto``.
        rows: output rows of a tile, a power of two times 32; ``None`` picks by size.
    """

    kernel: str
    grouped: bool
    key_bits: int | str = "auto"
    rows: int | None = None

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


class Found(NamedTuple):
    """Where a search writes; ``None`` is not written.

    Args:
        table: ``[N_out, columns]`` int32.
        transposed: ``[slots, N_out]`` int32.
        masks: ``[N_out, ceil(K / 31)]`` int32.
        counts: ``[K]`` int64, zeros.
        tile_counts: ``[slots, tiles]`` int32, triplets of every slot and tile.
    """

    table: Tensor | None = None
    transposed: Tensor | None = None
    masks: Tensor | None = None
    counts: Tensor | None = None
    tile_counts: Tensor | None = None


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


def fits_narrow(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> str | None:
    """Why 32-bit keys cannot serve a search, ``None`` if they can."""
    if source.batch_size > 1:
        return f"32-bit keys hold one cloud, the batch holds {source.batch_size}"
    bound = max(source.bound, target.bound)
    for axis in range(3):
        limit = NARROW.half[axis] - 1
        offsets = (abs(offset[axis]) for offset in kernel.offsets)
        reach = max(offsets) * source.tensor_stride[axis]
        if bound + reach > limit:
            return (
                f"32-bit keys hold at most {limit} on axis {'xyz'[axis]}, but coordinates reach "
                f"{bound} voxels and the kernel {reach} more"
            )
    return None


def key_bits(search: Search, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> int:
    """Width of the keys that a search compares.

    Raises:
        ValueError: 32 bits were asked for, and cannot hold the sites.
    """
    wanted = AUTO_BITS if search.key_bits == "auto" else search.key_bits
    if wanted == 64:
        return 64
    problem = fits_narrow(source, target, kernel)
    if problem is None:
        return 32
    if search.key_bits == "auto":
        return 64
    raise ValueError(f"{search.kernel}: {problem}; use key_bits=64")


def run_search(
    search: Search,
    layout: int,
    source: VoxelGrid,
    target: VoxelGrid,
    kernel: Kernel,
    found: Found,
    rows: int,
    threshold: int = 0,
) -> None:
    """Find the input row of every (output, slot) and write it as ``found`` asks.

    Args:
        search: how.
        layout: `TABLE`, `TRANSPOSED`, `HYBRID` or `HALF_TABLE`. A transposed output of fewer rows
            than the kernel has slots holds the first slots only.
        source: input sites.
        target: output sites.
        kernel: the relation.
        found: outputs.
        rows: output rows of a tile.
        threshold: in the hybrid layout, slots of a smaller L1 norm go to the table.

    Raises:
        ValueError: too many rows for int32, or a kernel too long in z for a tile.
    """
    if max(source.rows, target.rows) >= 1 << 31:
        raise ValueError(f"{search.kernel}: a grid of 2 ** 31 sites or more; split the batch")
    if target.rows == 0:
        return
    device = source.device
    bits = key_bits(search, source, target, kernel)
    limit = kernel.volume // 2 if layout == HALF_TABLE else kernel.volume
    if layout == TRANSPOSED and found.transposed is not None:
        limit = found.transposed.shape[0]
    if limit == 0:
        return
    run_slots = kernel.size[2] if search.grouped else 1
    runs = -(-limit // run_slots)
    columns = 0 if found.table is None else found.table.shape[1]
    chunk_runs = runs
    if layout in (TABLE, HALF_TABLE):
        chunk_runs = min(runs, max(1, LARGE_TILE_BYTES // (4 * rows * run_slots)))
    chunks = -(-runs // chunk_runs)
    tiles = -(-target.rows // rows)

    words = 0 if found.masks is None else found.masks.shape[1]
    tile = {TABLE: chunk_runs * run_slots, TRANSPOSED: 0, HYBRID: columns}
    width = tile.get(layout, chunk_runs * run_slots)
    shared = rows * (width + words) + chunk_runs * (4 + run_slots)
    shared = 4 * (shared + (kernel.volume if layout == HYBRID else 0))
    if shared > SHARED_BYTES:
        raise ValueError(
            f"{search.kernel}: {width} slots at once take {shared} bytes of shared memory, but a "
            f"block has {SHARED_BYTES}: kernel size {kernel.size} is too long; product='pairs' serves it"
        )

    own = source.layout
    fields = (*own.shifts, *own.axis_bits, *_narrow_bias(own))
    keys, packing = source.keys, own
    if bits == 32:
        packing = NARROW
        keys = torch.empty(source.rows, dtype=torch.int32, device=device)
        module(f"{search.kernel}.cu", device, KEY_BITS=32, LAYOUT=layout).launch(
            "narrow_keys",
            -(-source.rows // 256),
            NARROW_ARGUMENTS.pack(source.keys.data_ptr(), keys.data_ptr(), source.rows, *fields),
            device,
        )
    stride = source.tensor_stride
    first = [value * step for value, step in zip(kernel.offsets[0], stride, strict=True)]
    steps = [
        dilation * step << shift
        for dilation, step, shift in zip(kernel.dilation, stride, packing.shifts, strict=True)
    ]
    arguments = ARGUMENTS.pack(
        keys.data_ptr(),
        target.keys.data_ptr(),
        *(0 if tensor is None else tensor.data_ptr() for tensor in found),
        target.rows,
        tiles,
        packing.delta(first),
        *steps,
        source.rows,
        kernel.size[1],
        kernel.size[2],
        kernel.volume,
        limit,
        rows,
        (rows // FEWEST_ROWS).bit_length() - 1,
        runs,
        chunk_runs,
        chunks,
        columns,
        words,
        int(chunks > 1 or layout == HALF_TABLE),
        threshold,
        *kernel.dilation,
        *kernel.padding,
        *fields,
    )
    module(f"{search.kernel}.cu", device, KEY_BITS=bits, LAYOUT=layout).launch(
        search.kernel, tiles * chunks, arguments, device, shared_bytes=shared
    )


def _narrow_bias(layout: KeyLayout) -> tuple[int, int, int]:
    x, y, z = (small - large for small, large in zip(NARROW.half, layout.half, strict=True))
    return x, y, z


def search_table(
    search: Search, source: VoxelGrid, target: VoxelGrid, kernel: Kernel
) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbour table, row masks and triplets of every slot.

    Returns:
        ``[N_out, K]`` int32, ``[N_out, ceil(K / 31)]`` int32, ``[K]`` int64.
    """
    rows, volume, device = target.rows, kernel.volume, source.device
    words = -(-volume // MASK_BITS)
    size = search.rows or table_rows(rows, volume)
    table = torch.empty(rows, volume, dtype=torch.int32, device=device)
    masks = torch.empty(rows, words, dtype=torch.int32, device=device)
    if 4 * size * volume > LARGE_TILE_BYTES:
        masks.zero_()  # several blocks share a row's mask
    counts = torch.zeros(volume, dtype=torch.int64, device=device)
    run_search(search, TABLE, source, target, kernel, Found(table, None, masks, counts), size)
    return table, masks, counts

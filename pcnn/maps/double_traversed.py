"""Double-traversed binary search of sorted queries in the sorted input sites, on CUDA devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.layouts import MASK_BITS
from pcnn.kernels.cuda import module
from pcnn.maps.base import map_of_table

#: Bytes of a cache line, and int32 elements of it.
LINE_BYTES, LINE = 128, 32

#: Bytes of an entry of the list of query blocks.
ENTRY_BYTES = 8

#: Source blocks whose queries a warp splits, warps of a block, rows of a block of the last kernel.
SPLITS, WARPS, ROWS = 31, 4, 128

#: Blocks of the last kernel, for every 31 slots: enough to fill a GPU, few enough to sum counts.
ROW_BLOCKS = 1024

#: Blocks that a grid holds.
GRID_LIMIT = (1 << 31) - 1


@dataclass(frozen=True)
class DoubleTraversed:
    """Search backwards to split the queries, then forwards within small blocks.

    The keys of the output sites plus the delta of slot k are a sorted segment of queries. The last
    key of every block of B input keys is searched in the segment, which says what queries can only
    equal a key of that block; ranges of more than C are cut. Then each query is searched in its
    block, in shared memory. Scratch memory is one table more.

    Source: Minuet (EuroSys 2024), section 5.1; query blocks stand at places known in closed form.
    """

    device_only: ClassVar[bool] = True
    name: str = "double_traversed"
    source_block: int = 256  # B, input keys of a block, a power of two up to 4096
    query_block: int = 512  # C, largest number of queries of a block

    def __post_init__(self) -> None:
        size = self.source_block
        if not 2 <= size <= 4096 or size & (size - 1):
            raise ValueError(f"source_block must be a power of two from 2 to 4096, got {size}")
        if self.query_block < 1:
            raise ValueError(f"query_block must be at least 1, got {self.query_block}")

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map with the layouts table and counts; see `Builder.build`."""
        volume, n_in, n_out = kernel.volume, source.rows, target.rows
        device = source.device
        if n_in == 0 or n_out == 0:
            table = torch.full((n_out, volume), -1, dtype=torch.int32, device=device)
            counts = torch.zeros(volume, dtype=torch.int64, device=device)
            return map_of_table(source, target, kernel, table, None, counts)

        blocks = -(-n_in // self.source_block)
        segments = blocks + n_out // self.query_block
        if volume * segments > GRID_LIMIT:
            raise ValueError(
                f"{self.name}: {volume} slots of {segments} query blocks each exceed the "
                f"{GRID_LIMIT} blocks of a grid; raise source_block and query_block"
            )
        pitch = -(-n_out // LINE) * LINE
        # one allocation for the query blocks, the key deltas of the slots and the columns
        list_bytes = volume * (segments + 1) * ENTRY_BYTES
        columns = -(-(list_bytes + 8 * volume) // LINE_BYTES) * LINE_BYTES
        scratch = torch.empty(columns // 4 + volume * pitch, dtype=torch.int32, device=device)
        table = torch.empty(n_out, volume, dtype=torch.int32, device=device)
        counts = torch.empty(volume, dtype=torch.int64, device=device)
        base = scratch.data_ptr()
        given = (
            *(source.keys, target.keys, base, base + list_bytes, base + columns, table, counts),
            *(*kernel.key_steps(source.tensor_stride), pitch),
            *(*kernel.size[1:], n_in, n_out, volume, segments),
        )
        defines = {"SOURCE_BLOCK": self.source_block, "QUERY_BLOCK": self.query_block}
        kernels = module("double_traversed.cu", device, **defines)
        splits = volume * -(-blocks // SPLITS)  # warps
        rows = -(-volume // MASK_BITS) * min(-(-n_out // ROWS), ROW_BLOCKS)
        arguments = kernels.pack("write_rows", given)  # the same for all three
        kernels.run("split_queries", -(-splits // WARPS), arguments)
        kernels.run("search_blocks", volume * segments, arguments)
        kernels.run("write_rows", rows, arguments)
        return map_of_table(source, target, kernel, table, None, counts)

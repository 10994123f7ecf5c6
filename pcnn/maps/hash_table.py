"""Hash table or dense grid of the input sites, looked up at every slot of every output, on CUDA."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.packing import HALF
from pcnn.geometry.voxel_grid import cells_along
from pcnn.kernels.cuda import module
from pcnn.kernels.structs import packer
from pcnn.maps.base import map_of_table

SOURCE = "hash_table.cu"

#: Ways to keep the sites, and their number in csrc/hash_table.cu.
STORES = {"hash": 0, "grid": 1}

#: Threads of a block of every kernel but `search`, and output rows of a tile of that.
THREADS, ROWS = 256, 32

#: Entries that begin at one place for neighbours along z (log2), and bytes of an entry.
GROUP_BITS, ENTRY_BYTES = 2, 8

#: Fewest entries of a table, and the largest that is left three quarters empty rather than half:
#: it then fits the L2 cache beside the results.
MIN_CAPACITY, ROOMY_BYTES = 64, 16 << 20

#: Warps that search, at most: what 132 multiprocessors hold. They walk over the rows, so that each
#: of the K counters gets one atomic a block, not one a tile.
SEARCH_WARPS = 132 * 64

#: Slots whose results for 32 rows fit 48 KB of shared memory; of more, what a pass holds.
TILE_SLOTS, PASS_SLOTS = 370, 341

#: Longest column (slots along z) that is unrolled.
UNROLLED_SLOTS = 8


@dataclass(frozen=True)
class HashTable:
    """Keep the input sites where a coordinate finds its row; look up every slot of each output.

    ``hash``: open addressing with linear probing over packed keys, at most half full. Neighbours
    along z begin to probe in one 32-byte sector, so a column of slots reads one or two.
    ``grid``: an array over the bounding box, one memory access for a look-up, at the price of
    clearing ``4 B prod_axis(cells)`` bytes, by which ``auto`` decides.

    Source: TorchSparse (MLSys 2022), section 4.4; its figure 13 takes the steps one by one:
    `search` ``hash`` or ``grid``, then `simplified`, `symmetry`.
    """

    device_only: ClassVar[bool] = True
    name: str = "hash_table"
    search: str = "auto"  # hash, grid, or a grid where it takes at most grid_bytes_per_site
    grid_bytes_per_site: int = 256  # budget of auto, in bytes of the grid per input site
    simplified: bool = True  # kernel size known to the compiler
    symmetry: bool = True

    def __post_init__(self) -> None:
        if self.search not in ("auto", *STORES):
            names = ", ".join(("auto", *STORES))
            raise ValueError(f"search must be one of {names}, got {self.search!r}")

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map with the layouts table and counts; see `Builder.build`."""
        device, volume = source.device, kernel.volume
        n_in, n_out = source.rows, target.rows
        mirrored = self.symmetry and kernel.is_symmetric and source is target and volume > 1
        search = self.search_of(source)
        by_grid = search == "grid"
        defines = _defines(kernel, search, mirrored, self.simplified)
        kernels = module(SOURCE, device, **defines)
        written = volume - volume // 2 if mirrored else volume
        pass_slots = written if written <= TILE_SLOTS else PASS_SLOTS  # that the shared tile holds

        # where entries are mirrored, the empty ones above the centre are not written
        ints: dict[str, Any] = {"dtype": torch.int32, "device": device}
        shape = n_out, volume
        table = torch.full(shape, -1, **ints) if mirrored else torch.empty(shape, **ints)
        counts = torch.empty(volume, dtype=torch.int64, device=device)
        capacity = 0 if by_grid else _capacity(n_in)
        words = self.grid_size(source) // 4 if by_grid else capacity * ENTRY_BYTES // 4
        scratch = torch.full((words,), -1, **ints)
        # bits of a hash that number the groups of a hash table
        hash_bits = capacity.bit_length() - 1 - GROUP_BITS
        kept = (0, 0) if by_grid else (32 - hash_bits, capacity - 1)
        places = scratch.data_ptr(), source.keys.data_ptr()
        store = packer(SOURCE, "Store")(*places, *_cells(source), *kept)
        kernels.launch("insert", max(1, -(-n_in // THREADS)), store, counts, n_in, volume)
        arguments = packer(SOURCE, "SearchArguments")(
            *(store, target.keys.data_ptr(), table.data_ptr(), counts.data_ptr(), n_out),
            *(*kernel.key_steps(source.tensor_stride), *[-own for own in kernel.padding]),
            *(*kernel.dilation, *kernel.size, pass_slots),
        )
        blocks = min(SEARCH_WARPS // defines["WARPS"], -(-n_out // ROWS))
        kernels.run("search", blocks, arguments, 4 * (ROWS * (pass_slots | 1) + pass_slots))
        return map_of_table(source, target, kernel, table, None, counts)

    def grid_size(self, source: VoxelGrid) -> int:
        """Bytes of a grid that holds all sites for sure: the box of the batch for every cloud."""
        cells = math.prod(cells_along(source.extent, source.tensor_stride))
        return 4 * source.batch_size * cells

    def search_of(self, source: VoxelGrid) -> str:
        """How the sites of a layer are kept: `search`, or what ``auto`` chooses."""
        if self.search != "auto":
            return self.search
        return (
            "grid" if self.grid_size(source) <= self.grid_bytes_per_site * source.rows else "hash"
        )


@functools.cache
def _defines(kernel: Kernel, search: str, mirrored: bool, simplified: bool) -> dict[str, int]:
    """Macros of the source for a layer."""
    volume = kernel.volume
    columns = -(-(volume // 2 if mirrored else volume) // kernel.size[2])
    defines = {"STORE": STORES[search], "SYMMETRIC": int(mirrored), "WARPS": _warps(columns)}
    defines["GROUP_BITS"] = GROUP_BITS
    if simplified and volume <= TILE_SLOTS and kernel.size[2] <= UNROLLED_SLOTS:
        defines |= zip(("KX", "KY", "KZ"), kernel.size, strict=True)
    return defines


def _capacity(sites: int) -> int:
    """Entries of a table: a power of two, at least 4 N while that is small, else at least 2 N."""
    least = 4 if ENTRY_BYTES * 4 * sites <= ROOMY_BYTES else 2
    return 1 << (max(MIN_CAPACITY, least * sites) - 1).bit_length()


def _warps(columns: int) -> int:
    """Warps that share the columns of a tile: 2 to 8, of those that idle least the most."""
    if columns == 1:
        return 1
    return max(range(2, 9), key=lambda warps: (columns / (warps * -(-columns // warps)), warps))


def _cells(source: VoxelGrid) -> tuple[bytes, bytes]:
    """How a key splits into cells of the sites, and the box of them, as `Store` holds both."""
    stride = source.tensor_stride
    bias = [-HALF % step for step in stride]  # multiples of a step stay multiples once biased
    axes = zip(source.extent[0], bias, stride, strict=True)
    low = [first // step + (HALF + own) // step for first, own, step in axes]
    box = *low, *cells_along(source.extent, stride)
    return packer(SOURCE, "Cells")(*stride, *bias), packer(SOURCE, "Box")(*box)

"""Z-delta search on packed keys, for all maps of a network in one launch (Spira, 5.2 to 5.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import HALF
from pcnn.geometry.voxel_grid import Box, joint_box
from pcnn.kernels import cuda
from pcnn.kernels.structs import address, packer
from pcnn.maps.base import Relation, Sites, Task, build_table, map_of_table

SOURCE = "z_delta.cu"

#: Maps of a launch, as in the source.
MAX_TASKS = 14

#: Output rows of a tile; a multiple of a warp.
FEWEST_ROWS, MOST_ROWS = 32, 128

#: Tiles below which halving them fills the device better than it costs.
FEW_TILES = 512

#: Shared memory of a tile of the table [bytes]: eight blocks leave half of an SM's to the L1 cache.
TILE_BYTES = 16 << 10
#: The same where one row of 32 is larger than that, and the most that any device of today grants.
LARGE_TILE_BYTES, SHARED_BYTES = 48 << 10, 96 << 10

_THREADS = 256


@dataclass(frozen=True)
class ZDelta:
    """One binary search for every output and (x, y) of the kernel, then steps along z.

    Keys are sorted, so inputs of equal (x, y) are consecutive and ascend in z: from the smallest z
    of the kernel, found by binary search, the other K_z - 1 slots are a few steps forward.
    """

    device_only: ClassVar[bool] = True
    masks: ClassVar[bool] = False
    name: str = "z_delta"  # in configurations and reports
    deltas: bool = True  # False: a search for every slot, the baseline of Spira's section 6.4
    key_bits: int | str = "auto"  # 64, 32 (one cloud that takes no more), or auto, which is 64

    def __post_init__(self) -> None:
        if self.key_bits not in (32, 64, "auto"):
            raise ValueError(f"{self.name}: key_bits must be 32, 64 or auto, got {self.key_bits!r}")
        if self.key_bits == 32 and not self.deltas:
            raise ValueError(f"{self.name}: key_bits=32 is for z-delta search, got deltas=False")

    @property
    def together(self) -> bool:
        """See `TableSearch`: fields of 32-bit keys are made of the box of every cloud."""
        return self.key_bits != 32

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by z-delta search; see `Builder.build`."""
        if self.key_bits != 32 or not source.rows:
            return build_table(self, source, target, kernel)
        if source.batch_size > 1:
            raise ValueError(
                f"{self.name}: key_bits=32 holds one cloud, the batch holds {source.batch_size}"
            )
        box = joint_box([source.extent, target.extent])
        shifts, low = narrow_fields(box, kernel, source.tensor_stride)
        keys = narrow_keys(source.keys, shifts, low)
        others = keys if target is source else narrow_keys(target.keys, shifts, low)
        sites = Sites(keys, source.rows), Sites(others, target.rows)
        relation = Relation(kernel, source.tensor_stride, shifts)
        task = Task.of(self, *sites, relation)
        self.search([task])
        return map_of_table(source, target, kernel, task.table)

    def search(self, tasks: Sequence[Task]) -> None:
        """See `TableSearch.search`."""
        for start in range(0, len(tasks), MAX_TASKS):
            self._launch(tasks[start : start + MAX_TASKS])

    def _launch(self, tasks: Sequence[Task]) -> None:
        device, parts = tasks[0].table.device, []
        pack = packer(SOURCE, "SearchTask")
        blocks = shared = 0
        for task in tasks:
            relation, source, target = task.relation, task.source, task.target
            kernel = relation.kernel
            tiles, tile_bytes = self._tiles(kernel, target.rows)
            tensors = source.keys, target.keys, source.count, target.count
            part = pack(
                *map(address, (*tensors, task.table, task.counts)),
                *kernel.key_steps(relation.spacing, relation.shifts),
                *(source.rows, target.rows, blocks, *kernel.size[1:], kernel.volume),
                *(*tiles, int(target.fixed)),
            )
            parts.append(part)
            blocks += -(-target.rows // tiles[0]) * tiles[-1]
            shared = max(shared, tile_bytes)
        bits = 32 if self.key_bits == 32 else 64
        kernels = cuda.module(SOURCE, device, DELTAS=int(self.deltas), KEY_BITS=bits)
        arguments = packer(SOURCE, "SearchArguments")(b"".join(parts), len(parts))
        kernels.run("z_delta", blocks, arguments, shared)

    def _tiles(self, kernel: Kernel, n_out: int) -> tuple[tuple[int, ...], int]:
        """How a search is cut into blocks whose tile of the table fits in so much shared memory.

        Rows of a tile and their shift, runs, runs of a chunk, and chunks.
        """
        rows = MOST_ROWS
        while rows > FEWEST_ROWS and (
            4 * rows * kernel.volume > TILE_BYTES or n_out < rows * FEW_TILES
        ):
            rows //= 2
        run_slots = kernel.size[2] if self.deltas else 1  # of one binary search
        runs = -(-kernel.volume // run_slots)
        most = max(1, LARGE_TILE_BYTES // (4 * rows * run_slots))
        chunk_runs = -(-runs // -(-runs // most))  # chunks of even length
        shared = 4 * (rows * chunk_runs * run_slots + chunk_runs * (4 + run_slots))
        if shared > SHARED_BYTES:
            raise ValueError(
                f"{self.name}: kernel size {kernel.size} is too long along z: {run_slots} slots "
                f"take {shared} bytes of shared memory, a block has {SHARED_BYTES}"
            )
        shift = (rows // FEWEST_ROWS).bit_length() - 1
        return (rows, shift, runs, chunk_runs, -(-runs // chunk_runs)), shared


def narrow_fields(box: Box, kernel: Kernel, spacing: Triple) -> tuple[Triple, Triple]:
    """Shifts of x, y and z in 32-bit keys of one cloud, and the coordinates whose fields are 0.

    Fields are as wide as a box takes, and what a kernel reaches beyond it (Spira, section 5.3).
    """
    low, sizes = [], []
    for axis, (first, last) in enumerate(zip(*box, strict=True)):
        below = kernel.padding[axis]
        above = max(0, (kernel.size[axis] - 1) * kernel.dilation[axis] - below)
        low.append(first - below * spacing[axis])
        sizes.append(last + above * spacing[axis] - low[axis] + 1)
    x, y, z = (max(1, (size - 1).bit_length()) for size in sizes)
    if x + y + z > 32:
        raise ValueError(
            f"32-bit keys: with what the kernel reaches the cloud takes {x} + {y} + {z} bits of x, "
            "y and z; use key_bits=64"
        )
    return (y + z, z, 0), (low[0], low[1], low[2])


def narrow_keys(keys: Tensor, shifts: Triple, low: Triple) -> Tensor:
    """``[N]`` int32 keys of 64-bit ones."""
    narrow = torch.empty(keys.shape[0], dtype=torch.int32, device=keys.device)
    kernels = cuda.module(SOURCE, keys.device, DELTAS=1, KEY_BITS=32)
    own: dict[str, Any] = {"bias": [-HALF - first for first in low], "shift": shifts[:2]}
    blocks = -(-len(keys) // _THREADS)
    kernels.launch("narrow_keys", blocks, keys=keys, narrow=narrow, n=len(keys), **own)
    return narrow

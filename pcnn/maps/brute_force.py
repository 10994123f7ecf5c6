"""Every pair of sites compared for every slot: slow, plain, and the definition of correct."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps.assemble import assemble_pairs

#: Comparisons done at once, to bound memory.
CHUNK = 1 << 24


@dataclass(frozen=True)
class BruteForce:
    """Compare coordinates directly, O(N_in N_out K) integer comparisons."""

    name: str = "brute_force"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        """Kernel map by exhaustive comparison; see `MapBuilder.build`."""
        inputs = source.coords.to(torch.int64)  # [N_in, 4]
        outputs = target.coords.to(torch.int64)  # [N_out, 4]
        step = torch.tensor((1, *source.tensor_stride), device=source.device)
        rows = max(1, CHUNK // max(1, source.rows))
        found = []
        for offset in kernel.offsets:
            shift = torch.tensor((0, *offset), device=source.device) * step
            parts = []
            for start in range(0, target.rows, rows):
                wanted = outputs[start : start + rows] + shift
                equal = (wanted[:, None, :] == inputs[None, :, :]).all(-1)
                i, j = equal.nonzero(as_tuple=True)
                parts.append((j, i + start))
            empty = inputs.new_zeros(0)
            found.append(
                (
                    torch.cat([empty, *(j for j, _ in parts)]),
                    torch.cat([empty, *(i for _, i in parts)]),
                )
            )
        symmetric = kernel.is_symmetric and source is target
        return assemble_pairs(found, source, target, symmetric)

"""Pooling over the neighbour table of a map, by a device kernel that no count is needed for."""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.kernels import cuda

_POOL = struct.Struct("3Pqiii0q")
_THREADS = 256

#: In the order of the constants in ``csrc/pooling.cu``.
POOLINGS = ("max", "sum", "mean")


def pool_table(x: Tensor, kernel_map: KernelMap, pooling: str) -> Tensor:
    """Maximum, sum or mean of the inputs of every output ``[N_out, C]``; 0 where it has none.

    Computed in float32; nothing waits. Without gradients.
    """
    (table,), values = kernel_map.layout("table"), x.to(torch.float32).contiguous()
    (rows, volume), channels, device = table.shape, values.shape[1], x.device
    out = torch.empty(rows, channels, dtype=torch.float32, device=device)
    pointers = values.data_ptr(), table.data_ptr(), out.data_ptr()
    arguments = _POOL.pack(*pointers, rows, channels, volume, POOLINGS.index(pooling))
    blocks = -(-rows * channels // _THREADS)
    cuda.module("pooling.cu", device).launch("pool_table", blocks, arguments, device)
    return out.to(x.dtype)

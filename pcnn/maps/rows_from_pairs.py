"""Triplets by output row from triplets by slot, by the kernels of ``csrc/rows_from_pairs.cu``."""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import Layout, rows_csr
from pcnn.kernels import cuda
from pcnn.maps.radix_sort import MAX_ITEMS, RadixSort, passes_of
from pcnn.maps.table_to_pairs import empty_pairs

_KEYS = struct.Struct("6Pqi0q")
_LIST = struct.Struct("7P2qi0q")
_THREADS = 256

# as in csrc/levels.cu: blocks of a kernel that adds its histogram to the others'
_KEY_BLOCKS = 264


def rows_from_pairs(kernel_map: KernelMap) -> Layout:
    """Layout ``rows_csr`` of a map on a device; see `pcnn.geometry.layouts.rows_csr`.

    One stable sort by row, which takes 24 bytes a triplet while it lasts. The host does not wait
    where it knows the pairs. More triplets than one sort takes are sorted in torch.
    """
    in_index, out_index, _ = kernel_map.layout("pairs")
    n, n_out = in_index.shape[0], kernel_map.n_out
    if n > MAX_ITEMS:
        return rows_csr(kernel_map)
    device = in_index.device
    listed = empty_pairs(n, device)
    if not n:
        return *listed, torch.zeros(n_out + 1, dtype=torch.int64, device=device)
    offsets = torch.empty(n_out + 1, dtype=torch.int64, device=device)
    ends: Tensor = torch.nn.functional.pad(kernel_map.layout("counts")[0].cumsum(0), (1, 0))
    sort, passes = RadixSort.of(n, device), passes_of(max(1, (n_out - 1).bit_length()))
    kernels, blocks = cuda.module("rows_from_pairs.cu", device), -(-n // _THREADS)
    keys = _KEYS.pack(out_index.data_ptr(), *sort.pointers, n, passes)
    kernels.launch("row_keys", min(_KEY_BLOCKS, blocks), keys, device)
    sort.run(passes)
    tensors = (sort.keys, sort.values, in_index, ends, *listed, offsets)
    pointers = (tensor.data_ptr() for tensor in tensors)
    arguments = _LIST.pack(*pointers, n, n_out, kernel_map.volume)
    kernels.launch("list_rows", blocks, arguments, device)
    return *listed, offsets

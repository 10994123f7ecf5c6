"""A submanifold map of which half of the slots is stored (Spira, section 5.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.layouts import Layout
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from pcnn.maps.table_to_pairs import Pairs


def map_of_half(pairs: Pairs, rows: int) -> KernelMap:
    """Kernel map of the first K // 2 slots; what else is asked for is derived from them.

    Args:
        pairs: ``in_index [T']``, ``out_index [T']`` int32, ``offsets [K // 2 + 1]`` int64 on the
            host, of the first half of an odd number of slots.
        rows: sites, which are inputs and outputs.
    """
    in_index, out_index, offsets = pairs
    slots, half = offsets.shape[0] - 1, int(offsets[-1])
    mirrored = 2 * half + rows - offsets.flip(0)  # the central slot holds every row
    derive: dict[str, Callable[[KernelMap], Layout]] = {**DEVICE_LAYOUTS, "pairs": _pairs_of_half}
    edges = EdgeSet((rows, rows), 2 * slots + 1, (True, True), True, derive)
    counts = offsets.diff().to(in_index.device, non_blocking=True)
    edges.layouts["half_pairs", False] = in_index, out_index, counts
    for flipped in (False, True):
        edges.layouts["offsets", flipped] = (torch.cat((offsets, mirrored)),)
    return KernelMap(edges)


def _pairs_of_half(kernel_map: KernelMap) -> Layout:
    """Layout ``pairs``: the half that is stored, the central slot, and the half that mirrors it."""
    other = kernel_map.transpose()
    if other.has("pairs"):
        out_index, in_index, offsets = other.layout("pairs")
        return in_index, out_index, offsets
    in_index, out_index, _ = kernel_map.layout("half_pairs")
    (offsets,) = kernel_map.layout("offsets")
    sizes = offsets[: kernel_map.volume // 2 + 1].diff().tolist()
    inputs, outputs = in_index.split(sizes), out_index.split(sizes)
    every = torch.arange(kernel_map.n_out, dtype=torch.int32, device=in_index.device)

    def joined(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Tensor:
        return torch.cat((*first, every, *reversed(second)))

    return joined(inputs, outputs), joined(outputs, inputs), offsets

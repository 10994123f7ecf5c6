"""Numbers of triplets of many maps on the host, with one wait for the device."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import torch

from pcnn.geometry import KernelMap
from pcnn.kernels import pinned


def read_offsets(maps: Iterable[KernelMap]) -> None:
    """Give maps the layout ``offsets``, where a builder has counted the triplets of every slot.

    Layouts that list triplets are then made without a wait. Maps that the host knows already, and
    those without counts, stay as they are.
    """
    unknown = {
        id(one.edges): one.edges
        for one in maps
        if one.known_triplets is None and (one.has("counts") or one.transpose().has("counts"))
    }
    if not unknown:
        return
    edges = list(unknown.values())
    counts = [KernelMap(one).layout("counts")[0] for one in edges]
    numbers = iter(pinned.read_copy(torch.cat(counts) if len(counts) > 1 else counts[0]))
    for one in edges:
        sizes = [next(numbers) for _ in range(one.volume)]
        one.layouts["offsets", False] = (torch.tensor([0, *accumulate(sizes)]),)

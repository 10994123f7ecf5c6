"""Shared by losses of descriptors: samples, precision, batches without anything to learn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: Between the places of different pairs of clouds, along every axis [m].
APART = 1e5


def no_loss(*features: Tensor) -> Tensor:
    """A zero that hangs on the features, with gradient 0 everywhere.

    Every parameter then has a gradient, on one rank of several too, and NaN or infinite features do
    not reach it.
    """
    return torch.stack([full_precision(side[:0]).sum() for side in features]).sum()


def full_precision(features: Tensor) -> Tensor:
    """Features in float32 where they are in half precision, else as they are."""
    return features.float() if features.dtype in (torch.float16, torch.bfloat16) else features


def common_places(batch: Any) -> tuple[Tensor, Tensor]:
    """Places of all rows of a batch in one frame: sources where the true transform takes them.

    Different pairs of clouds lie `APART` from each other, so that no place of one is near to any of
    another. The way there is float64: at that distance float32 knows no centimetres.
    """
    offsets = batch.source_offsets, batch.target_offsets
    places = batch.source_places.double(), batch.target_places.double()
    pairs = [
        torch.searchsorted(
            ends[1:].contiguous(), torch.arange(len(rows), device=rows.device), right=True
        )
        for rows, ends in zip(places, offsets, strict=True)
    ]
    transforms = batch.transforms[:, :3].double()[pairs[0]]  # [N, 3, 4]
    # sums of products by hand: a product of matrices for every row is slow
    moved = (transforms[:, :, :3] * places[0][:, None]).sum(2) + transforms[:, :, 3]
    first, second = (
        rows + APART * pair[:, None] for rows, pair in zip((moved, places[1]), pairs, strict=True)
    )
    return first, second


def places_of_pairs(batch: Any, source_rows: Tensor, target_rows: Tensor) -> tuple[Tensor, Tensor]:
    """Places of some rows of every pair of clouds, in the frame of its target."""
    transforms = batch.transforms[:, :3].double()  # [B, 3, 4]
    ours = batch.source_places[source_rows].double()
    moved = ours @ transforms[:, :, :3].mT + transforms[:, None, :, 3]
    return moved, batch.target_places[target_rows].double()


def squared_gaps(places: Tensor, others: Tensor) -> Tensor:
    """Squared distances [..., K, H] between places [..., K, 3] and [..., H, 3].

    Axis by axis: `torch.cdist` takes some fifty times as long for three of them.
    """
    x, y, z = (places[..., :, None, axis] - others[..., None, :, axis] for axis in range(3))
    return x.square_().addcmul_(y, y).addcmul_(z, z)


def drawn(n: int, samples: int, device: torch.device) -> Tensor:
    """Rows ``[min(n, samples)]`` int64 of n, each at most once, by the device's own generator."""
    return torch.randperm(n, device=device)[:samples]


def samples_of_pairs(offsets: Tensor, total: int, samples: int) -> tuple[Tensor, Tensor]:
    """Draw rows of every pair's own range, each at most once; nothing waits for the device."""
    rows = torch.arange(total, device=offsets.device)
    pair = torch.searchsorted(offsets[1:].contiguous(), rows, right=True)
    # rows of a pair in random order, where the pair's rows lie
    shuffled = (pair + torch.rand(total, dtype=torch.float64, device=offsets.device)).argsort()
    place = offsets[:-1, None] + torch.arange(samples, device=offsets.device)
    return shuffled[place.clamp(max=total - 1)], place < offsets[1:, None]

"""Descriptors that hold under any rotation: those of turned copies of a cloud (after YOHO, 3.2).

A network describes every copy of a cloud that a finite group of rotations makes. When the cloud is
turned, the copies are described in another order, up to the rest of the rotation that the group
does not hold: ``f(g B) = f(g h A)`` where ``B = h A``. So descriptors averaged over the copies hold
under all rotations, and tell less. Matches by them vote for h, and with the copies in that order
whole rows of descriptors are compared. The likeliest orders are all tried.

Source: H. Wang et al., You Only Hypothesize Once, 2022; without its networks on the group.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.descriptor import Described, unit_length
from pcnn.registration.matching import drawn, match
from pcnn.registration.rotation_group import rotation_group

#: Points of each cloud whose matches vote for a rotation.
VOTERS = 2000
#: Rotations that are tried.
TRIED = 3


def pooled(turned: Tensor) -> Tensor:
    """Descriptors that do not depend on the order of the copies: mean and deviation over them.

    Args:
        turned: ``[N, G, C]``.

    Returns:
        ``[N, 2 C]`` float32 of unit length.
    """
    numbers = turned.float()
    return unit_length(torch.cat([numbers.mean(1), numbers.std(1, correction=0)], 1))


def likely_turns(
    source: Described, target: Described, device: torch.device | str = "cpu"
) -> list[int]:
    """Rotations of the group that turn the source as the target lies, nearly.

    The points of mutual matches of pooled descriptors are compared under every order of the copies;
    each match has one vote.

    Args:
        source: with turned copies.
        target: with as many.
        device: where it computes.

    Returns:
        The numbers of `TRIED` rotations, most votes first; without a match those from 0 on, the
        identity.

    Raises:
        ValueError: clouds without copies or with different ones, or descriptors that are not
            finite.
    """
    moving, fixed = _copies(source, target)
    order = moving.shape[1]
    products = rotation_group(order).products.to(device)
    generator = torch.Generator().manual_seed(0)
    rows = [drawn(len(one.points), VOTERS, generator) for one in (source, target)]
    ends = [one.features[own].to(device) for one, own in zip((source, target), rows, strict=True)]
    if not all(map(len, ends)):
        return list(range(TRIED))
    found = match(ends[0], ends[1], "mutual")
    moving = moving[rows[0]].to(device)[found.source].float()  # [M, G, C]
    fixed = fixed[rows[1]].to(device)[found.target].float()
    agreement = [(moving[:, products[:, turn]] * fixed).sum((1, 2)) for turn in range(order)]
    votes = torch.bincount(torch.stack(agreement).argmax(0), minlength=order)
    return [int(turn) for turn in votes.argsort(descending=True, stable=True)[:TRIED]]


def in_one_order(
    source: Described, target: Described, turn: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Descriptors of all copies of two clouds, side by side in the order that fits both.

    Args:
        source: with turned copies.
        target: with as many.
        turn: number of the rotation that turns the source as the target lies.
        device: where it computes.

    Returns:
        ``[N, G C]`` and ``[M, G C]`` float32 of unit length.

    Raises:
        ValueError: as `likely_turns`.
    """
    moving, fixed = _copies(source, target)
    order = rotation_group(moving.shape[1]).products[:, turn]
    ends = moving[:, order], fixed
    first, second = (unit_length(one.to(device).flatten(1).float()) for one in ends)
    return first, second


def _copies(source: Described, target: Described) -> tuple[Tensor, Tensor]:
    if source.turned is None or target.turned is None:
        raise ValueError("both clouds must be described with turned copies")
    if source.turned.shape[1:] != target.turned.shape[1:]:
        raise ValueError(
            "both clouds must have as many copies and channels, got "
            f"{list(source.turned.shape[1:])} and {list(target.turned.shape[1:])}"
        )
    return source.turned, target.turned

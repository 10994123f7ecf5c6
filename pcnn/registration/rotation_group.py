"""The finite groups of rotations that cover all rotations evenly."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

#: Orders of the groups: nothing but the identity, the rotations of a cube, of an icosahedron.
ORDERS = (1, 24, 60)

#: Two generators of each group, as axis and part of a full turn.
_GENERATORS = {
    24: (((0.0, 0.0, 1.0), 1 / 4), ((1.0, 1.0, 1.0), 1 / 3)),
    60: (((0.0, 1.0, (1 + math.sqrt(5)) / 2), 1 / 5), ((1.0, 1.0, 1.0), 1 / 3)),
}


class RotationGroup(NamedTuple):
    """Rotations of which any two make a third.

    Every rotation is within 62.8 degrees of one of the 24 of a cube, and within 44.5 degrees of one
    of the 60 of an icosahedron.

    Args:
        rotations: ``[G, 3, 3]`` float64, the identity first.
        products: ``[G, G]`` int64: ``rotations[products[a, b]] = rotations[a] @ rotations[b]``.
    """

    rotations: Tensor
    products: Tensor


@cache
def rotation_group(order: int) -> RotationGroup:
    """The group with so many rotations, one of `ORDERS`.

    Raises:
        ValueError: another number.
    """
    if order not in ORDERS:
        raise ValueError(f"groups of {', '.join(map(str, ORDERS))} rotations exist, not of {order}")
    found = [torch.eye(3, dtype=torch.float64)]
    generators = [_rotation(axis, turn) for axis, turn in _GENERATORS.get(order, ())]
    for one in found:  # grows until every product is there
        for generator in generators:
            product = generator @ one
            if all(float((product - other).abs().max()) > 1e-6 for other in found):
                found.append(product)
    rotations = torch.stack(found)
    products = (rotations[:, None] @ rotations[None]).flatten(0, 1)
    index = torch.cdist(products.flatten(1), rotations.flatten(1)).argmin(1)
    return RotationGroup(rotations, index.view(order, order))


def _rotation(axis: tuple[float, float, float], turn: float) -> Tensor:
    x, y, z = torch.nn.functional.normalize(torch.tensor(axis, dtype=torch.float64), dim=0).tolist()
    cross = torch.tensor([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(2 * math.pi * turn * cross)

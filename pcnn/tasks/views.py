"""Test-time augmentation: several views of a cloud, whose probabilities are summed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import MinLen
from torch import Tensor

from pcnn.config.values import check_fields
from pcnn.ranges import Factor

Flip = Literal["none", "x", "y", "xy"]


@dataclass(frozen=True)
class View:
    """A cloud turned about the vertical axis, scaled and mirrored, in this order."""

    angle: float = 0.0  # [deg]
    scale: float = 1.0  # factor on all coordinates
    flip: Flip = "none"  # the axes whose coordinates change sign

    def __call__(self, points: Tensor) -> Tensor:
        """Points [P, 3] as the view has them; the identity returns the very tensor."""
        if self.angle % 360.0:
            cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
            x, y, z = points.unbind(1)
            points = torch.stack([x * cos - y * sin, x * sin + y * cos, z], dim=1)
        factors = [self.scale * (-1.0 if axis in self.flip else 1.0) for axis in "xy"]
        if factors == [1.0, 1.0]:
            return points
        return points * points.new_tensor([*factors, self.scale])


@dataclass(frozen=True)
class EvaluationViews:
    """Every combination of rotations, scales and flips.

    Source: the test modes of Pointcept (four rotations; five scales by two flips).
    """

    rotations: Annotated[Sequence[float], MinLen(1)] = (0.0,)  # about the vertical axis [deg]
    scales: Annotated[Sequence[Factor], MinLen(1)] = (1.0,)  # factors
    flips: Annotated[Sequence[Flip], MinLen(1)] = ("none",)  # mirrored axes: none, x, y, xy
    name: str = "views"  # in reports

    def __post_init__(self) -> None:
        check_fields(self)

    def __len__(self) -> int:
        return len(self.rotations) * len(self.scales) * len(self.flips)

    def __iter__(self) -> Iterator[View]:
        for angle in self.rotations:
            for scale in self.scales:
                for flip in self.flips:
                    yield View(float(angle), float(scale), flip)  # type: ignore[arg-type]


@torch.no_grad()
def summed_probabilities(
    logits_of: Callable[[Any], Tensor], batch: Any, views: EvaluationViews
) -> Tensor:
    """Sum over the views of the softmax at every point."""
    total: Tensor | float = 0.0
    for view in views:
        tensor = batch.placed(view(batch.points))
        total = total + logits_of(tensor).double().softmax(1)[tensor.geometry.inverse]
    return torch.as_tensor(total)

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

    Source: the test modes of Pointcept (four rotations; five scales by two flips; fragments).
    """

    rotations: Annotated[Sequence[float], MinLen(1)] = (0.0,)  # about the vertical axis [deg]
    scales: Annotated[Sequence[Factor], MinLen(1)] = (1.0,)  # factors
    flips: Annotated[Sequence[Flip], MinLen(1)] = ("none",)  # mirrored axes: none, x, y, xy
    fragments: bool = False
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
    logits_of: Callable[[Any], Tensor], batch: Any, views: EvaluationViews, classes: int
) -> Tensor:
    """Sum over the views, and the fragments of each, of the softmax at every point."""
    total = torch.zeros(len(batch.points), classes, dtype=torch.float64, device=batch.points.device)
    for rows, tensor in inputs_of(batch, views):
        seen = logits_of(tensor).double().softmax(1)[tensor.geometry.inverse]
        if rows is None:
            total += seen
        else:
            total.index_add_(0, rows, seen)
    return total


@torch.no_grad()
def summed_cloud_probabilities(
    logits_of: Callable[[Any], Tensor], batch: Any, views: EvaluationViews, classes: int
) -> Tensor:
    """Sum over the views, and the fragments of each, of the softmax of every cloud.

    A cloud whose points have all had their turn before those of others counts no further fragment.
    """
    clouds, size = batch.point_batch, batch.batch_size
    empty = clouds.bincount(minlength=size) == 0  # the network has an answer for them, too
    total = torch.zeros(size, classes, dtype=torch.float64, device=clouds.device)
    for rows, tensor in inputs_of(batch, views):
        seen = logits_of(tensor).double().softmax(1)
        if rows is not None:
            here = clouds[rows].bincount(minlength=size) > 0
            seen = seen.where((here | empty)[:, None], 0.0)
        total += seen
    return total


def inputs_of(batch: Any, views: EvaluationViews) -> Iterator[tuple[Tensor | None, Any]]:
    """Yield every network input that the views make, and its points; None stands for all."""
    for view in views:
        moved = view(batch.points)
        if not views.fragments or not len(moved):
            yield None, batch.placed(moved)
            continue
        for rows in batch.fragments(moved):
            yield rows, batch.placed(moved[rows], rows)

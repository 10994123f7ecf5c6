"""Width and density of clouds, from which a descriptor, its cell and all radii follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.registration.downsample import voxel_firsts

#: Points whose distances are computed, and places that they are computed from.
_POINTS, _PLACES = 1 << 16, 128
#: Cells along the width of a cloud, of which each gives one place at most.
_PARTS = 48
#: The neighbour whose distance is the spacing.
_NEIGHBOUR = 8


@dataclass(frozen=True)
class CloudMeasures:
    """How wide and how dense clouds of one place are.

    Args:
        clouds: how many.
        width: `extent` of the widest [m].
        spacing: `spacing` of the sparsest [m]; 0 where one has too few points to tell.
    """

    clouds: int
    width: float
    spacing: float

    @property
    def in_words(self) -> str:
        """The width, as a part of a sentence."""
        return f"the {self.subject} {self.width:.3g} m wide"

    @property
    def subject(self) -> str:
        """The cloud or the clouds with their verb, as in a sentence."""
        return "cloud is" if self.clouds == 1 else "clouds are"


def measured(clouds: Sequence[Tensor]) -> CloudMeasures:
    """Measure clouds [P, 3] [m] each; of none all measures are 0."""
    widths = [extent(points) for points in clouds]
    apart = [spacing(points, width) for points, width in zip(clouds, widths, strict=True)]
    sparsest = max(apart) if apart and min(apart) > 0.0 else 0.0
    return CloudMeasures(len(clouds), max(widths, default=0.0), sparsest)


def extent(points: Tensor) -> float:
    """Longest side [m] of the box that holds the middle nine tenths of points [P, 3] of each axis.

    Far points are few in a scan and many in none, so that a stray one decides nothing. Of no points
    it is 0.
    """
    if not len(points):
        return 0.0
    some = points[:: -(-len(points) // 100_000)].float()  # quantile takes no more than 16 M numbers
    low, high = torch.quantile(some, torch.tensor([0.05, 0.95], device=some.device), dim=0)
    return float((high - low).max())


def spacing(points: Tensor, width: float | None = None) -> float:
    """How far from each other points lie [m]: the median distance to the eighth neighbour.

    The median is over places that are spread evenly over the surfaces, not over points: so those
    near a sensor, which are most of a scan, do not decide alone. Of large clouds a random part is
    looked at, and its density counted up as that of surfaces.

    Args:
        points: [P, 3] [m].
        width: their `extent`, where it is known.

    Returns:
        0 where there are nine points or fewer, or all lie in one place.
    """
    width = extent(points) if width is None else width
    if len(points) <= _NEIGHBOUR + 1 or not width > 0.0:
        return 0.0
    some, share = points.float(), 1.0
    if len(points) > _POINTS:
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
        some, share = some[order[:_POINTS].to(points.device)], _POINTS / len(points)
    rows = voxel_firsts(some, width / _PARTS)
    at = torch.linspace(0, len(rows) - 1, min(_PLACES, len(rows)), device=some.device)
    places = some[rows[at.round().long()]]
    # without the products of matrices, which lose what is near
    exact = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(places, some, compute_mode=exact).topk(_NEIGHBOUR + 1, largest=False)
    return float(apart.values[:, -1].median()) * math.sqrt(share)

"""Cells that fit clouds: from their extent and density, one way for rooms and streets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.registration.descriptor import Described, Descriptor
from pcnn.registration.downsample import voxel_firsts

#: Points whose distances are computed, and places that they are computed from.
_POINTS, _PLACES = 1 << 16, 128
#: Cells along the width of a cloud, of which each gives one place at most.
_PARTS = 48
#: The neighbour whose distance is the spacing.
_NEIGHBOUR = 8


@dataclass(frozen=True)
class KnownClouds:
    """Clouds that a descriptor knows, in its own cells.

    Args:
        least: width below which there are too few cells to tell places apart.
        usual: width of most clouds that it was trained on.
        most: width above which clouds are no longer described in these cells.
        spacing: largest `spacing` of clouds that fill their surfaces as those of the training do.
    """

    least: float
    usual: float
    most: float
    spacing: float


#: Benchmark of networks that were trained on lengths in cells, and have no cell of their own.
IN_CELLS = "cells"

#: By the benchmark that a network was trained for, measured on simulated training clouds: widths of
#: 42 to 55 cells in rooms, 120 to 139 on drives; spacings of 0.6 to 0.7, and 1.0 to 1.6.
KNOWN = {
    "threedmatch": KnownClouds(20.0, 50.0, 1000.0, 1.25),
    "kitti": KnownClouds(20.0, 130.0, 1000.0, 2.5),
    IN_CELLS: KnownClouds(20.0, 80.0, 1000.0, 2.5),
}


@dataclass(frozen=True)
class CellSize:
    """The cell of clouds, and why.

    Args:
        cell: edge [m].
        reason: why it is not the trained one, in words; empty where it is.
    """

    cell: float
    reason: str = ""


def fitting_cell(
    clouds: Sequence[Tensor], trained: float, known: KnownClouds, always: bool = False
) -> CellSize:
    """The cell in which clouds look as those of the training.

    1. The trained cell, where the widest cloud has `least` to `most` such cells across; otherwise
       the cell that makes it as wide as the training's clouds are, `usual` cells.
    2. Larger where the sparsest cloud needs it: its spacing is at most `spacing` cells.
    3. At most a `least`-th of the width.

    With ``always`` the first step never takes the trained cell. Then the result is proportional to
    the size of the clouds. Of clouds that are too small to tell it is the trained one.

    Args:
        clouds: [P, 3] [m] each, one or more.
        trained: cell of the training [m].
        known: the clouds of the training.
        always: choose by the clouds alone.
    """
    width, apart = max(map(extent, clouds)), [spacing(points) for points in clouds]
    if not min(apart) > 0.0:
        return CellSize(trained)
    cell, reason = trained, ""
    if always or not known.least * trained <= width <= known.most * trained:
        cell = width / known.usual
        reason = f"the {_clouds(clouds)} {width:.3g} m wide"
    needed = max(apart) / known.spacing
    if needed > cell:
        cell = needed
        sparse = f"points are {max(apart):.2g} m apart"
        reason = f"{reason} and {sparse}" if reason else sparse
    return CellSize(min(cell, width / known.least), reason)


def cell_of_width(width: float) -> float:
    """Cell [m] of a network that knows rooms and streets, by the width of the clouds [m].

    0.05 m up to 4 m, 0.3 m from 40 m on, in between a power of the width.
    """
    share = (math.log(max(width, 1e-9)) - math.log(4.0)) / math.log(10.0)
    return float(0.05 * 6.0 ** min(max(share, 0.0), 1.0))


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


def spacing(points: Tensor) -> float:
    """How far from each other points lie [m]: the median distance to the eighth neighbour.

    The median is over places that are spread evenly over the surfaces, not over points: so those
    near a sensor, which are most of a scan, do not decide alone. Of large clouds a random part is
    looked at, and its density counted up as that of surfaces.

    Args:
        points: [P, 3] [m].

    Returns:
        0 where there are nine points or fewer, or all lie in one place.
    """
    width = extent(points)
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


@dataclass(frozen=True)
class Rescaled:
    """A descriptor in other cells than its own: clouds are divided by a factor, then described.

    Args:
        descriptor: that describes.
        factor: of the cell over that of the descriptor.
    """

    descriptor: Descriptor
    factor: float

    @property
    def name(self) -> str:
        """That of the descriptor, and the cell."""
        return f"{self.descriptor.name}, cells of {self.voxel_size:.3g} m"

    @property
    def voxel_size(self) -> float:
        """Edge of a cell [m]."""
        return self.descriptor.voxel_size * self.factor

    def __call__(self, points: Tensor) -> Described:
        """Describe points [P, 3] [m]; described points are in metres again."""
        found = self.descriptor(points / self.factor)
        scored = found.scored
        if scored is not None:  # a head reads places in cells
            scored = replace(scored, voxel_size=scored.voxel_size * self.factor)
        return replace(found, points=found.points * self.factor, scored=scored)


def _clouds(clouds: Sequence[Tensor]) -> str:
    return "cloud is" if len(clouds) == 1 else "clouds are"

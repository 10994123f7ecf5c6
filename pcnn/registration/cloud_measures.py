"""Width and density of clouds, cells that fit them, and one point a voxel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Points whose distances are computed, and places that they are computed from.
_POINTS, _PLACES = 1 << 16, 128
#: Cells along the width of a cloud, of which each gives one place at most.
_PARTS = 48
#: The neighbour whose distance is the spacing.
_NEIGHBOUR = 8
#: Points that are looked at for an extent or a span.
LOOKED_AT = 100_000
#: Edge of the cells of which each counts once in a span [m]; so far from zero they are told apart.
_CELL, _FAR = 0.5, 1 << 20
#: Share of points up to which those that are alone are strays, not a sparse scan.
_STRAYS = 0.05
#: Spacing beyond so many cells, and width below so many, are those of other units.
_SPARSE, _NARROW = 25.0, 4.0


@dataclass(frozen=True)
class CloudMeasures:
    """How wide and how dense clouds of one place are."""

    clouds: int  # how many
    width: float  # extent of the widest [m]
    spacing: float  # spacing of the sparsest [m]; 0 where one has too few points to tell
    spans: tuple[float, ...]  # span of each [m]

    @property
    def in_words(self) -> str:
        """The width, as a part of a sentence."""
        subject = "cloud is" if self.clouds == 1 else "clouds are"
        return f"the {subject} {self.width:.3g} m wide"

    def doubt(self, cell: float) -> str:
        """Why coordinates may be no metres, by a cell [m]: hardly any cells, or far apart ones."""
        asked = "are the coordinates metres?"
        if self.spacing > 0.0 and self.width < _NARROW * cell:
            return f"{self.in_words}, {self.width / cell:.2g} cells of {cell:g} m: {asked}"
        if self.spacing > _SPARSE * cell:
            return f"points lie {self.spacing:.3g} m apart in cells of {cell:g} m: {asked}"
        return ""


def measured(clouds: Sequence[Tensor]) -> CloudMeasures:
    """Measure clouds [P, 3] [m] each; of none all measures are 0."""
    widths = _read([extent(points) for points in clouds])
    spacings = [spacing(points, width) for points, width in zip(clouds, widths, strict=True)]
    found = _read([*spacings, *map(span, clouds)])
    apart, spans = found[: len(clouds)], found[len(clouds) :]
    sparsest = max(apart) if apart and min(apart) > 0.0 else 0.0
    return CloudMeasures(len(clouds), max(widths, default=0.0), sparsest, tuple(spans))


def _read(numbers: Sequence[Tensor]) -> list[float]:
    """Wait once for numbers [] of one device."""
    return torch.stack(list(numbers)).tolist() if numbers else []


@dataclass(frozen=True)
class KnownClouds:
    """Clouds that a descriptor knows, in its own cells."""

    least: float  # width below which there are too few cells to tell places apart
    usual: float  # width of most clouds that it was trained on
    most: float  # width above which clouds are no longer described in these cells
    spacing: float  # largest spacing of clouds that fill their surfaces as those of the training do


#: By the benchmark that a network was trained for, measured on simulated training clouds: widths of
#: 42 to 55 cells in rooms, 120 to 139 on drives; spacings of 0.6 to 0.7, and 1.0 to 1.6.
KNOWN = {
    "threedmatch": KnownClouds(20.0, 50.0, 1000.0, 1.25),
    "kitti": KnownClouds(20.0, 130.0, 1000.0, 2.5),
}


def fitting_cell(clouds: CloudMeasures, trained: float, known: KnownClouds) -> tuple[float, str]:
    """The cell [m] in which clouds look as those of the training, and why it is another.

    The trained one where it fits the width, otherwise one in proportion to it; larger where the
    sparsest cloud needs it, and at most a `least`-th of the width.
    """
    width, spacing = clouds.width, clouds.spacing
    if not spacing > 0.0:
        return trained, ""
    cell, reason = trained, ""
    if not known.least * trained <= width <= known.most * trained:
        cell = width / known.usual
        reason = clouds.in_words
    needed = spacing / known.spacing
    if needed > cell:
        cell = needed
        sparse = f"points are {spacing:.2g} m apart"
        reason = f"{reason} and {sparse}" if reason else sparse
    return min(cell, width / known.least), reason


def extent(points: Tensor) -> Tensor:
    """Longest side [] [m] of the box of the middle nine tenths of points [P, 3]; of none 0."""
    if not len(points):
        return points.new_zeros((), dtype=torch.float64)
    some = _some(points).float()  # quantile takes no more than 16 M numbers
    ends = torch.tensor([0.05, 0.95]).to(some.device, non_blocking=True)
    low, high = torch.quantile(some, ends, dim=0)
    return (high - low).max().double()


def span(points: Tensor) -> Tensor:
    """Longest side [] [m] of the box of the middle nine tenths of cells of 0.5 m; of none 0.

    It says whether a cloud is a room or a street: most points of a street lie near the sensor, most
    cells do not. Strays count for nothing, unless more than a twentieth of the cloud are such.
    """
    if not len(points):
        return points.new_zeros((), dtype=torch.float64)
    some = _some(points).double()
    places = (some / _CELL).floor().clamp(1 - _FAR, _FAR - 2)  # [P, 3]
    steps = torch.tensor([4 * _FAR**2, 2 * _FAR, 1])
    around = (torch.cartesian_prod(*3 * [torch.arange(-1, 2)]) * steps).sum(1)
    steps, around = (one.to(some.device, non_blocking=True) for one in (steps, around))
    keys, cell, count = torch.unique(
        ((places.long() + _FAR) * steps).sum(1), return_inverse=True, return_counts=True
    )
    occupied = keys[:, None] // steps % (2 * _FAR) - _FAR  # [C, 3]
    beside = keys[:, None] + around  # [C, 27], with the cell itself
    there = keys[torch.searchsorted(keys, beside).clamp_(max=len(keys) - 1)] == beside
    stray = (count == 1) & (there.sum(1) == 1)  # [C]
    kept = ~(stray & (stray.sum() <= _STRAYS * len(some)))
    ordered = occupied.where(kept[:, None], _FAR).sort(0).values
    last = kept.sum() - 1
    outer = (0.05 * last.double()).long()
    low, high = ordered[torch.stack([outer, last - outer])]  # cells [3] each
    inside = (places >= low) & (places <= high) & kept[cell, None]  # [P, 3]
    most, least = (some.where(inside, far) for far in (-math.inf, math.inf))
    return (most.amax(0) - least.amin(0)).max()


def _some(points: Tensor) -> Tensor:
    return points[:: -(-len(points) // LOOKED_AT)]


def spacing(points: Tensor, width: float | None = None) -> Tensor:
    """How far apart points lie [] [m]: median distance to the eighth neighbour, all over them."""
    width = float(extent(points)) if width is None else width
    if len(points) <= _NEIGHBOUR + 1 or not width > 0.0:
        return points.new_zeros((), dtype=torch.float64)
    some, share = points.float(), 1.0
    if len(points) > _POINTS:
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
        some, share = (
            some[order[:_POINTS].to(points.device, non_blocking=True)],
            _POINTS / len(points),
        )
    rows = voxel_firsts(some, width / _PARTS)
    at = torch.linspace(0, len(rows) - 1, min(_PLACES, len(rows)), device=some.device)
    places = some[rows[at.round().long()]]
    # without the products of matrices, which lose what is near
    axes = zip(places.split(1, 1), some.T, strict=True)
    squares = sum((place - point).square_() for place, point in axes)  # [S, P]
    assert isinstance(squares, Tensor)
    near = squares.topk(_NEIGHBOUR + 1, largest=False).values[:, -1]
    return near.median().sqrt().double() * math.sqrt(share)


def voxel_means(points: Tensor, size: float) -> Tensor:
    """Mean of the points of every occupied voxel."""
    voxel, count = voxels_of(points, size)
    sums = torch.zeros(len(count), 3, dtype=torch.float64, device=points.device)
    sums.index_add_(0, voxel, points.double())
    return (sums / count[:, None]).to(points.dtype)


def voxel_firsts(points: Tensor, size: float) -> Tensor:
    """Rows of the first point of every occupied voxel."""
    voxel, count = voxels_of(points, size)
    rows = torch.arange(len(points), device=points.device)
    first = torch.full_like(count, len(points))
    return first.scatter_reduce_(0, voxel, rows, "amin").sort().values


def voxels_of(points: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """Voxel [P] of every point, numbered in order of their cells, and points [V] of each."""
    if not 0 < size < math.inf:
        raise ValueError(f"the size of a voxel must be positive [m], got {size}")
    if len(points) == 0:
        empty = torch.zeros(0, dtype=torch.int64, device=points.device)
        return empty, empty
    places = torch.floor(points.double() / size)
    places -= places.amin(0)
    # looked at before they are integers: what int64 cannot hold would wrap round without a word
    if not bool((places.amax(0) + 1).prod() < 2.0**62):
        if not bool(torch.isfinite(points).all()):
            raise ValueError("points hold NaN or infinite coordinates")
        raise ValueError(f"the cloud is too large for voxels of {size} m")
    cells = places.long()
    extent = cells.amax(0) + 1
    key = (cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]
    _, voxel, count = torch.unique(key, return_inverse=True, return_counts=True)
    return voxel, count

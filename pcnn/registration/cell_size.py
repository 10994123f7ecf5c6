"""Cells that fit clouds: from their extent and density, one way for rooms and streets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from pcnn.registration.cloud_measures import CloudMeasures
from pcnn.registration.descriptor import Described, Descriptor, described_all


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


@dataclass(frozen=True)
class CellSize:
    """The cell of clouds, and why."""

    cell: float  # edge [m]
    reason: str = ""  # why it is not the trained one, in words; empty where it is


def fitting_cell(
    clouds: CloudMeasures, trained: float, known: KnownClouds, always: bool = False
) -> CellSize:
    """The cell in which clouds look as those of the training.

    The trained one where it fits the width, otherwise, or ``always``, one in proportion to it;
    larger where the sparsest cloud needs it, and at most a `least`-th of the width.
    """
    width, spacing = clouds.width, clouds.spacing
    if not spacing > 0.0:
        return CellSize(trained)
    cell, reason = trained, ""
    if always or not known.least * trained <= width <= known.most * trained:
        cell = width / known.usual
        reason = clouds.in_words
    needed = spacing / known.spacing
    if needed > cell:
        cell = needed
        sparse = f"points are {spacing:.2g} m apart"
        reason = f"{reason} and {sparse}" if reason else sparse
    return CellSize(min(cell, width / known.least), reason)


@dataclass(frozen=True)
class Rescaled:
    """A descriptor in other cells than its own: clouds are divided by a factor, then described."""

    descriptor: Descriptor  # that describes
    factor: float  # of the cell over that of the descriptor

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
        return self.many([points])[0]

    def many(self, clouds: Sequence[Tensor]) -> list[Described]:
        """Describe several clouds."""
        smaller = [points / self.factor for points in clouds]
        names = [f"cloud {number}" for number in range(len(clouds))]
        found = described_all(self.descriptor, smaller, names)
        return [replace(one, points=one.points * self.factor) for one in found]

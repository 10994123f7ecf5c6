"""Where the rows of a network's input lie: what `geometry=` chooses in a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pcnn.datasets.samples import Cloud, SegmentationSample

VoxelSize = float | Sequence[float]


class Placement(Protocol):
    """Turns a cloud into a sample on a geometry; `pcnn.datasets.OnVoxels` or `OnPoints`.

    The size given to the methods is the edge of a cell of the finest level [m], one number or one
    per axis: a voxel on one geometry, the unit of kernels on the other.
    """

    @property
    def name(self) -> str:
        """Name in configurations and reports."""

    def sample(self, cloud: Cloud, size: VoxelSize) -> SegmentationSample:
        """Put a cloud, of any number of points, on the geometry.

        Raises:
            ValueError: coordinates or labels that do not serve, with the name of the file.
        """

    def kept(self, cloud: Cloud, size: VoxelSize) -> Cloud:
        """Return what a cache keeps of a training cloud, before augmentation."""

    def recipe(self, size: VoxelSize) -> Mapping[str, object]:
        """Return the plain values that `kept` depends on."""

"""Where the rows of a network's input lie: what `geometry=` chooses in a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

from annotated_types import Len
from torch import Tensor

from pcnn.datasets.samples import Cloud, SegmentationSample
from pcnn.ops.plan import Planner
from pcnn.ranges import Length
from pcnn.tensor import SparseTensor

VoxelSize = Length | Annotated[Sequence[Length], Len(3, 3)]


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

    def place(
        self,
        points: Tensor,
        inputs: Tensor,
        batch: Tensor,
        batch_size: int,
        size: VoxelSize,
        planner: Planner | None = None,
    ) -> SparseTensor:
        """Put points of several clouds on the geometry, on their device.

        Args:
            points: [P, 3] [m].
            inputs: [P, C] of every point.
            batch: [P] cloud of every point.
            batch_size: number of clouds.
            size: edge of a cell [m].
            planner: of the network that will take the tensor.
        """

    def row_cell(self, size: VoxelSize) -> VoxelSize | None:
        """Return the edge of the cells [m] that become one row each; None: every point is one."""

    def kept(self, cloud: Cloud, size: VoxelSize) -> Cloud:
        """Return what a cache keeps of a training cloud, before augmentation."""

    def recipe(self, size: VoxelSize) -> Mapping[str, object]:
        """Return the plain values that `kept` depends on."""

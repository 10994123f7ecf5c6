"""Features plus a geometry; nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Geometry
from pcnn.geometry.checks import require_tensors
from pcnn.geometry.kernel_map import one_line


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """Features on the sites of a geometry.

    Args:
        features: ``[N, C]``, row n belongs to site n.
        geometry: the sites.

    Raises:
        TypeError: features that are no tensor, or a geometry that is none.
        ValueError: features of another shape or on another device than the geometry.
    """

    features: Tensor
    geometry: Geometry

    def __post_init__(self) -> None:
        # every layer makes one of these: each property that is asked for once counts
        features, geometry = self.features, self.geometry
        if type(features) is not Tensor and not isinstance(features, Tensor):
            require_tensors(features=features)
        if not isinstance(geometry, Geometry):
            raise TypeError(
                f"geometry must be a VoxelGrid or a PointSet, got {type(geometry).__name__}; "
                "pcnn.voxelize and pcnn.native_points make tensors of points"
            )
        keys, shape = geometry.keys, features.shape
        if len(shape) != 2 or shape[0] != keys.shape[0]:
            raise ValueError(
                f"features must be [{keys.shape[0]}, C] to match the geometry, got {tuple(shape)}"
            )
        if features.device != keys.device:
            raise ValueError(f"features are on {features.device}, their geometry on {keys.device}")

    def __repr__(self) -> str:
        return self._one_line(self.features.dtype)

    def _one_line(self, dtype: torch.dtype) -> str:
        shape = f"[{self.geometry.rows}, {self.channels}]"
        name = str(dtype).removeprefix("torch.")
        return one_line(self, features=f"{shape} {name}", geometry=self.geometry)

    @property
    def channels(self) -> int:
        """Number of channels C."""
        return self.features.shape[1]

    def replace(self, features: Tensor) -> SparseTensor:
        """Return a tensor with other features on the same sites."""
        return SparseTensor(features, self.geometry)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> SparseTensor:
        """Return the tensor on another device."""
        features = self.features.to(device, non_blocking=non_blocking)
        return SparseTensor(features, self.geometry.to(features.device, non_blocking))

    def pin_memory(self) -> SparseTensor:
        """Return the tensor in page-locked memory."""
        return SparseTensor(self.features.pin_memory(), self.geometry.pin_memory())

    def at_points(self) -> Tensor:
        """Features ``[P, C]`` of the row of every point the finest geometry was made from.

        On a coarser level a point has the features of the cell that holds it.

        Raises:
            ValueError: no inverses lead from this geometry back to points.
        """
        return self.features[self.geometry.point_rows()]


def require_sparse(x: object, layer: object) -> None:
    """Refuse an input of a layer that is no sparse tensor.

    Raises:
        TypeError: naming the layer and what makes sparse tensors.
    """
    if not isinstance(x, SparseTensor):
        raise TypeError(
            f"{type(layer).__name__} takes a pcnn.SparseTensor, got {type(x).__name__}; "
            "pcnn.voxelize and pcnn.native_points make one of points and features"
        )

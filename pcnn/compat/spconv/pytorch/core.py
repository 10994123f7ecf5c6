"""`SparseConvTensor`, and what layers keep in it for the layers behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.compat.spconv.pytorch.sites import MOST_AXES, Sites, require
from pcnn.geometry import KernelMap


class ConvAlgo(Enum):
    """Algorithms of spconv: layers take and keep them, the engine decides."""

    Native = 0
    MaskImplicitGemm = 1
    MaskSplitImplicitGemm = 2


class SparseModule(nn.Module):
    """A module that takes sparse tensors in a `SparseSequential`."""


@dataclass(frozen=True, eq=False)
class IndiceData:
    """The kernel map of a layer under its ``indice_key``, with the sites on both sides."""

    kernel_map: KernelMap  # triplets from the input's rows to the output's
    source: Sites  # cells of the input
    target: Sites  # cells of the output
    is_subm: bool  # whether both are the same
    ksize: list[int]  # kernel size per axis
    dilation: list[int]
    spatial_shape: list[int]  # of the input
    out_spatial_shape: list[int]  # of the output


class SparseConvTensor:
    """Features on cells of a volume.

    Rows are in the order in which they are given, and submanifold, inverse and pointwise layers
    keep it. Rows of sites that a layer makes are sorted by (batch, axes).
    """

    def __init__(
        self,
        features: Tensor,  # [N, C]
        indices: Tensor,  # [N, 1 + d] int32 (batch, axes) with d from 1 to 3, each cell once
        spatial_shape: Sequence[int],
        batch_size: int,
        grid: Tensor | None = None,
        voxel_num: Tensor | None = None,
        indice_dict: dict[Any, IndiceData] | None = None,
        benchmark: bool = False,
    ) -> None:
        axes = indices.shape[1] - 1 if indices.ndim == 2 else 0
        require(features.ndim == 2, f"features must be [N, C], got {list(features.shape)}")
        require(
            indices.dtype == torch.int32 and 1 <= axes <= MOST_AXES,
            f"indices must be [N, 1 + d] int32 with d from 1 to {MOST_AXES}, got "
            f"{list(indices.shape)} {indices.dtype}",
        )
        require(
            len(spatial_shape) == axes,
            f"spatial_shape must hold one number for each of the {axes} axes of the indices, got "
            f"{list(spatial_shape)}",
        )
        require(batch_size > 0, f"batch_size must be positive, got {batch_size}")
        self._features = features
        self.spatial_shape = [int(cells) for cells in spatial_shape]
        self.batch_size = int(batch_size)
        self.indice_dict: dict[Any, IndiceData] = {} if indice_dict is None else indice_dict
        self.grid, self.voxel_num, self.benchmark = grid, voxel_num, benchmark
        self._sites = Sites(indices, self.spatial_shape, self.batch_size)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles take no maps along: layers find them again."""
        given = self._features, self.indices, self.spatial_shape, self.batch_size
        return type(self), given

    def __repr__(self) -> str:
        return f"SparseConvTensor[shape={self._features.shape}]"

    @property
    def features(self) -> Tensor:
        """``[N, C]``; `replace_feature` gives a tensor with others."""
        return self._features

    @property
    def indices(self) -> Tensor:
        """``[N, 1 + d]`` int32 (batch, axes)."""
        return self._sites.indices

    @indices.setter
    def indices(self, val: Tensor) -> None:
        """Other cells; what was found for those before is not kept with the tensor."""
        self._sites = Sites(val, self.spatial_shape, self.batch_size)

    @property
    def sites(self) -> Sites:
        """The cells, with the levels and maps found for them so far."""
        if self._sites.spatial_shape != self.spatial_shape:
            self._sites = Sites(self._sites.indices, self.spatial_shape, self.batch_size)
        return self._sites

    def replace_feature(self, feature: Tensor) -> SparseConvTensor:
        """The tensor with other features ``[N, C]``."""
        made = self.shadow_copy()
        made._features = feature
        return made

    def shadow_copy(self) -> SparseConvTensor:
        """A tensor of its own with all that this one holds."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def on_sites(
        self,
        features: Tensor,
        sites: Sites,
        spatial_shape: Sequence[int],
        indice_dict: dict[Any, IndiceData],
    ) -> SparseConvTensor:
        """The output of a layer on other sites; arguments as in the constructor."""
        made = self.shadow_copy()
        made._features, made._sites = features, sites
        made.spatial_shape, made.indice_dict = list(spatial_shape), indice_dict
        return made

    def find_indice_pair(self, key: Any) -> IndiceData | None:
        """The map that a layer kept under a key; ``None``: nothing, or no key."""
        return None if key is None else self.indice_dict.get(key)

    def dense(self, channels_first: bool = True) -> Tensor:
        """The volume ``[B, C, *spatial_shape]``, or ``[B, *spatial_shape, C]``; 0 elsewhere."""
        shape = [self.batch_size, *self.spatial_shape, self._features.shape[1]]
        places = self.indices.to(self._features.device).long().unbind(1)
        volume = self._features.new_zeros(*shape).index_put(tuple(places), self._features)
        return volume.movedim(-1, 1).contiguous() if channels_first else volume

    @classmethod
    def from_dense(cls, x: Tensor) -> SparseConvTensor:
        """Tensor of the cells of ``[B, *spatial_shape, C]`` where some channel is not 0."""
        cells = (x != 0).any(-1).nonzero()
        features = x[tuple(cells.unbind(1))]
        return cls(features, cells.int(), x.shape[1:-1], x.shape[0])

    def __add__(self, other: SparseConvTensor | Tensor) -> SparseConvTensor:
        added = other.features if isinstance(other, SparseConvTensor) else other
        return self.replace_feature(self._features + added)

    __radd__ = __add__

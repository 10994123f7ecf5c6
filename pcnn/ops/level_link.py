"""Features between a level and the finest sites, however many levels lie between."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pcnn.dataflows.torch_sums import accumulator
from pcnn.geometry import Geometry, VoxelGrid
from pcnn.geometry.sites import find_cells, require_voxels
from pcnn.ops.devoxelize import on_device_of


@dataclass(frozen=True, eq=False)
class LevelLink:
    """Which coarse site lies above every fine one, and moves of features along it.

    A coarse voxel stands at the lowest corner of its cell, as the fine ones do at theirs: so
    SPVNAS has it. Sites are found by their keys, so nothing waits for the device, whatever made
    the levels.
    """

    fine: VoxelGrid  # voxels
    coarse: VoxelGrid  # voxels of the same clouds

    def __post_init__(self) -> None:
        for side in (self.fine, self.coarse):
            require_voxels(side, "LevelLink")
        strides = zip(self.coarse.tensor_stride, self.fine.tensor_stride, strict=True)
        if self.fine.batch_size != self.coarse.batch_size or any(c % f for c, f in strides):
            raise ValueError(
                f"no link between {self.fine.batch_size} clouds of tensor stride "
                f"{self.fine.tensor_stride} and {self.coarse.batch_size} of "
                f"{self.coarse.tensor_stride}; give two levels of one batch, the finer one first"
            )

    @cached_property
    def _step(self) -> Tensor:
        """``[3]`` int32, the coarse tensor stride."""
        return on_device_of(self.fine.coords, self.coarse.tensor_stride, torch.int32)

    @cached_property
    def _above(self) -> tuple[Tensor, Tensor]:
        """Coarse row ``[N]`` int64 of every fine site, and whether there is one."""
        batch, cells = self.fine.coords.split((1, 3), dim=1)
        return find_cells(self.coarse, cells - cells.remainder(self._step), batch[:, 0])

    @staticmethod
    def of(fine: Geometry, coarse: Geometry) -> LevelLink:
        """The link between two levels."""
        return LevelLink(require_voxels(fine, "LevelLink"), require_voxels(coarse, "LevelLink"))

    def coarsened(self, features: Tensor) -> Tensor:
        """Mean of the fine sites in every coarse cell; sums and gradients as in `interpolated`."""
        rows, there = self._above
        none = self.coarse.rows  # where rows that lie in no cell are summed
        out = torch.where(there, rows, none)
        wide = features.to(accumulator(features.dtype))
        sums = wide.new_zeros(none + 1, wide.shape[1]).index_add(0, out, wide)
        counts = wide.new_zeros(none + 1).index_add(0, out, wide.new_ones(len(out)))
        mean = sums[:none] / counts[:none, None].clamp(min=1)
        return mean.to(features.dtype)

    def interpolated(self, features: Tensor) -> Tensor:
        """Trilinear between the eight coarse sites around every fine one.

        Weights of the sites that are there are normalised to a sum of 1. Sums are in float32, in
        float64 for float64; gradients flow to the features.
        """
        if not len(features):
            return features.new_zeros(self.fine.rows, features.shape[1]) + features.sum()
        rows, shares = self._corners()
        wide = accumulator(features.dtype)
        shares = shares.to(wide)
        out = features.new_zeros(self.fine.rows, features.shape[1], dtype=wide)
        for row, share in zip(rows.unbind(1), shares.unbind(1), strict=True):
            # a slot at a time: all eight together are eight times the memory of the result
            out = torch.addcmul(out, features.index_select(0, row).to(wide), share[:, None])
        return out.to(features.dtype)

    def _corners(self) -> tuple[Tensor, Tensor]:
        """Coarse rows ``[N, 8]`` int64 around every fine site, and their shares, float64."""
        rows, there = self._above
        # the neighbours of a cell are found once, not once for every site in it
        batch, cells = self.coarse.coords.split((1, 3), dim=1)
        corner = torch.arange(8, device=rows.device, dtype=torch.int32)[:, None]
        corners = torch.cat([corner >> 2, corner >> 1, corner], dim=1) & 1  # [8, 3]
        around = (cells[:, None, :] + corners * self._step).reshape(-1, 3)
        found, known = find_cells(self.coarse, around, batch[:, 0].repeat_interleave(8))
        rows_around, known = found.view(-1, 8)[rows], known.view(-1, 8)[rows]  # [N, 8]
        place = self.fine.coords[:, None, 1:].remainder(self._step) / self._step.double()
        weight = torch.where(corners > 0, place, 1 - place).prod(2)  # [N, 8]
        weight = weight * (known & there[:, None])
        total = weight.sum(1, keepdim=True)
        return rows_around, weight / torch.where(total > 0, total, 1)

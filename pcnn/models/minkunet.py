"""MinkUNet42: a U-Net of residual blocks (Choy et al. 2019), as the engine papers benchmark it.

Stem of two 3^3 convolutions; four times a 2^3 convolution of stride 2 and two residual blocks; four
times its transpose, the skip joined behind the upsampled channels, and two residual blocks. 42
convolutions with K > 1 and 21,709,184 convolution weights at width 1 with 4 input channels.

SPVCNN (Tang et al. 2020) puts it beside a branch of pointwise layers at full resolution, which
holds one row a site of the input and is never downsampled. Four times it takes up what the U-Net
found, interpolated to its sites: after the stem, at the coarsest level, half-way up and at the end.
At the two between, its means over the coarse cells go on in the U-Net. 21.8 million parameters at
width 1 with 4 input channels and 19 classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn

from pcnn.dataflows.torch_sums import accumulator
from pcnn.geometry import VoxelGrid
from pcnn.geometry.voxel_grid import find_cells, require_voxels
from pcnn.models.blocks import Layers, LinearNorm, NormFactory, scaled
from pcnn.nn import FeatureWise, PlannedModule, cat
from pcnn.ops import Engine
from pcnn.ops.devoxelize import corners_of_cells, interpolated, on_device_of, weights_of_corners
from pcnn.ranges import PartialShare, Width
from pcnn.tensor import SparseTensor

ENCODER = (32, 64, 128, 256)
DECODER = (256, 128, 96, 96)
STEM = 32
#: Residual blocks of every level.
BLOCKS = 2


class MinkUNet(PlannedModule):
    """U-Net on sparse tensors; every level halves the resolution.

    Args:
        in_channels: input features per site.
        out_channels: outputs per site; ``None`` leaves the decoder's features without a head.
        width: factor on all channels, rounded down.
        engine: engine of the convolutions.
        norm: makes norms.
        input_norm: standardise the input channels by a norm of their own. Metres and remission
            differ by two orders of magnitude; without it the small channels are learned late.
        stem_kernels: kernel sizes of the convolutions at full resolution.
        kernel_size: of the residual blocks.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None,
        width: float = 1.0,
        engine: str | Engine | None = None,
        norm: NormFactory = nn.BatchNorm1d,
        input_norm: bool = False,
        stem_kernels: Sequence[int] = (3, 3),
        kernel_size: int = 3,
    ) -> None:
        super().__init__()
        layers = Layers(engine, norm)
        self.in_channels = in_channels
        self.input = FeatureWise(norm(in_channels) if input_norm else nn.Identity())
        stem, decoder = int(width * STEM), scaled(width, DECODER)
        widths = [stem, *scaled(width, ENCODER)]
        self.stem = nn.Sequential(
            *(
                layers.conv(stem if n else in_channels, stem, size)
                for n, size in enumerate(stem_kernels)
            )
        )
        levels: list[nn.Module] = []
        for a, b in pairwise(widths):
            entry = layers.conv(a, a, 2, 2)
            levels.append(nn.Sequential(entry, layers.blocks(a, b, BLOCKS, kernel_size)))
        self.encoder = nn.ModuleList(levels)
        self.up = nn.ModuleList(
            layers.transposed(a, b, 2) for a, b in pairwise([widths[-1], *decoder])
        )
        skips = widths[-2::-1]  # channels joined at each step up, coarse to fine
        self.decoder = nn.ModuleList(
            layers.blocks(b + skip, b, BLOCKS, kernel_size)
            for b, skip in zip(decoder, skips, strict=True)
        )
        self.head: nn.Module = nn.Identity()
        if out_channels is not None:
            self.head = FeatureWise(nn.Linear(decoder[-1], out_channels))

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to ``[N, out_channels]`` on the same sites."""
        levels: list[SparseTensor] = [self.stem(self.input(x))]
        for encode in self.encoder:
            levels.append(encode(levels[-1]))
        y = levels.pop()
        for up, decode in zip(self.up, self.decoder, strict=True):
            skip = levels.pop()
            y = decode(cat(up(y, skip), skip))
        out: SparseTensor = self.head(y)
        return out


def MinkUNet42(
    in_channels: int = 4,
    out_channels: int | None = 19,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    norm: NormFactory = nn.BatchNorm1d,
    input_norm: bool = False,
) -> MinkUNet:
    """3D-MinkUNet of SPVNAS (Tang et al. 2020), which TorchSparse, Minuet and Spira evaluate.

    Arguments are those of `MinkUNet`; widths 0.5, 0.64 and 1.0 are published, without
    ``input_norm``.
    """
    return MinkUNet(in_channels, out_channels, width, engine, norm, input_norm)


@dataclass(frozen=True, eq=False)
class LevelLink:
    """Moves between levels; a coarse voxel stands at the lowest corner of its cell (SPVNAS)."""

    fine: VoxelGrid
    coarse: VoxelGrid  # of the same clouds

    @cached_property
    def _step(self) -> Tensor:
        """``[3]`` int32, the coarse tensor stride."""
        return on_device_of(self.fine.coords, self.coarse.tensor_stride, torch.int32)

    @cached_property
    def _above(self) -> tuple[Tensor, Tensor]:
        """Coarse row ``[N]`` int64 of every fine site, and whether there is one."""
        batch, cells = self.fine.coords.split((1, 3), dim=1)
        return find_cells(self.coarse, cells - cells.remainder(self._step), batch[:, 0])

    def coarsened(self, features: Tensor) -> Tensor:
        """Mean of the fine sites in every coarse cell; summed in float32 at least."""
        rows, there = self._above
        none = self.coarse.rows  # where rows that lie in no cell are summed
        out = torch.where(there, rows, none)
        wide = features.to(accumulator(features.dtype))
        sums = wide.new_zeros(none + 1, wide.shape[1]).index_add(0, out, wide)
        counts = wide.new_zeros(none + 1).index_add(0, out, wide.new_ones(len(out)))
        mean = sums[:none] / counts[:none, None].clamp(min=1)
        return mean.to(features.dtype)

    def interpolated(self, features: Tensor) -> Tensor:
        """Trilinear between the eight coarse sites around every fine one."""
        rows, there = self._above
        # the neighbours of a cell are found once, not once for every site in it
        batch, cells = self.coarse.coords.split((1, 3), dim=1)
        corners = corners_of_cells(rows.device)
        around = (cells[:, None, :] + corners * self._step).reshape(-1, 3)
        found, known = find_cells(self.coarse, around, batch[:, 0].repeat_interleave(8))
        place = self.fine.coords[:, None, 1:].remainder(self._step) / self._step.double()
        known = known.view(-1, 8)[rows] & there[:, None]
        weight = weights_of_corners(place, corners)
        return interpolated(features, found.view(-1, 8)[rows], weight, known)


class SPVCNN(MinkUNet):
    """Sparse voxel and point branch; on voxels, whose finest sites are the points of the branch.

    Arguments are those of `MinkUNet42`, and:

    Args:
        dropout: share of the features that training sets to 0 where the branch enters the U-Net.
    """

    def __init__(
        self,
        in_channels: int = 4,
        out_channels: int | None = 19,
        width: Width = 1.0,
        dropout: PartialShare = 0.3,
        engine: str | Engine | None = None,
        norm: NormFactory = nn.BatchNorm1d,
        input_norm: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, width, engine, norm, input_norm)
        met = scaled(width, (STEM, ENCODER[-1], DECODER[1], DECODER[3]))
        self.points = nn.ModuleList(LinearNorm(a, b, norm, nn.ReLU()) for a, b in pairwise(met))
        self.dropout = FeatureWise(nn.Dropout(dropout))

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to ``[N, out_channels]`` on the same sites."""
        points: SparseTensor = self.stem(self.input(x))
        levels = [points]
        for encode in self.encoder:
            levels.append(encode(levels[-1]))
        y = levels.pop()
        finest = require_voxels(x.geometry, "SPVCNN")
        for step, (up, decode) in enumerate(zip(self.up, self.decoder, strict=True)):
            if step in (0, 2):
                link = LevelLink(finest, require_voxels(y.geometry, "SPVCNN"))
                found = points.replace(link.interpolated(y.features))
                points = found + self.points[step // 2](points)
                y = self.dropout(y.replace(link.coarsened(points.features)))
            skip = levels.pop()
            y = decode(cat(up(y, skip), skip))
        out: SparseTensor = self.head(y + self.points[2](points))
        return out

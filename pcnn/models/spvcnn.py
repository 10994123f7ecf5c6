"""SPVCNN (Tang et al. 2020): MinkUNet beside a branch of pointwise layers at full resolution.

The branch holds one row a site of the input and is never downsampled. Four times it takes up what
the U-Net found, interpolated to its sites: after the stem, at the coarsest level, half-way up and
at the end. At the two between, its means over the coarse cells go on in the U-Net. 21.8 million
parameters at width 1 with 4 input channels and 19 classes.
"""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from pcnn.models.blocks import ConvFactory, LinearNorm, NormFactory, convolutions_of, scaled
from pcnn.models.minkunet import DECODER, ENCODER, STEM, MinkUNet
from pcnn.nn import FeatureWise, cat
from pcnn.ops import Engine
from pcnn.ops.level_link import LevelLink
from pcnn.ranges import PartialShare, Width
from pcnn.tensor import SparseTensor


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
        conv: ConvFactory | None = None,
        conv_transpose: ConvFactory | None = None,
        norm: NormFactory = nn.BatchNorm1d,
        input_norm: bool = False,
    ) -> None:
        encoder, decoder = scaled(width, ENCODER), scaled(width, DECODER)
        super().__init__(
            in_channels,
            out_channels,
            int(width * STEM),
            encoder,
            decoder,
            *convolutions_of(engine, conv, conv_transpose),
            norm,
            input_norm=input_norm,
        )
        met = int(width * STEM), encoder[-1], decoder[1], decoder[3]
        self.points = nn.ModuleList(LinearNorm(a, b, norm, nn.ReLU()) for a, b in pairwise(met))
        self.dropout = FeatureWise(nn.Dropout(dropout))

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to ``[N, out_channels]`` on the same sites."""
        points: SparseTensor = self.stem(self.input(x))
        levels = [points]
        for encode in self.encoder:
            levels.append(encode(levels[-1]))
        y = levels.pop()
        for step, (up, decode) in enumerate(zip(self.up, self.decoder, strict=True)):
            if step in (0, 2):
                link = LevelLink.of(points.geometry, y.geometry)
                found = points.replace(link.interpolated(y.features))
                points = found + self.points[step // 2](points)
                y = self.dropout(y.replace(link.coarsened(points.features)))
            skip = levels.pop()
            y = decode(cat(up(y, skip), skip))
        out: SparseTensor = self.head(y + self.points[2](points))
        return out

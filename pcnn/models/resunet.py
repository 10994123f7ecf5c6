"""ResUNetBN2C, the network of Fully Convolutional Geometric Features (Choy et al. 2019).

One residual block a level, 3^3 transposed convolutions pinned to the encoder's sites, skips joined
behind the upsampled channels, unit-length descriptors. 8,748,960 convolution weights with a 5^3
first kernel, one input channel and 32 outputs.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Annotated

from annotated_types import Interval
from torch import nn

from pcnn.models.blocks import ConvNorm, Layers, NormFactory, ResidualBlock, scaled
from pcnn.nn import Conv3d, FeatureWise, PlannedModule, cat
from pcnn.nn.fused import fused_convolution
from pcnn.ops import Engine
from pcnn.ranges import Width
from pcnn.tensor import SparseTensor

ENCODER = (32, 64, 128, 256)
DECODER = (128, 64, 64)  # coarse to fine
MERGED = 64


class Level(nn.Module):
    """A convolution with norm and, without an activation between, a residual block."""

    def __init__(self, entry: ConvNorm, channels: int, layers: Layers) -> None:
        super().__init__()
        self.entry, self.block = entry, ResidualBlock(channels, channels, layers)

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> SparseTensor:
        """Features ``[N_in, C_in]`` to ``[N_out, C_out]``, on given sites if there are any."""
        y: SparseTensor = self.block(self.entry(x, out))
        return y


class ResUNetBN2C(PlannedModule):
    """ResUNetBN2C: descriptors of 32 channels from a constant input.

    Args:
        in_channels: input features per site; FCGF uses a single 1.
        out_channels: channels of a descriptor.
        first_kernel: kernel size of the first convolution (5; 7 in the released 3DMatch model).
        normalize_features: scale descriptors to unit length; off for logits.
        width: factor on all inner channels, rounded down.
        engine: engine of the convolutions.
        norm: makes norms.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 32,
        first_kernel: Annotated[int, Interval(ge=1, le=9)] = 5,
        normalize_features: bool = True,
        width: Width = 1.0,
        engine: str | Engine | None = None,
        norm: NormFactory = partial(nn.BatchNorm1d, momentum=0.05),
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.normalize_features = normalize_features
        layers, merged = Layers(engine, norm), int(width * MERGED)
        encoder, decoder = scaled(width, ENCODER), scaled(width, DECODER)
        entries = (
            layers.conv(a, b, 3 if n else first_kernel, 2 if n else 1, activation=False)
            for n, (a, b) in enumerate(pairwise([in_channels, *encoder]))
        )
        self.encoder = nn.ModuleList(
            Level(entry, b, layers) for entry, b in zip(entries, encoder, strict=True)
        )
        skips = encoder[-2::-1]
        inputs = [encoder[-1], *(d + s for d, s in zip(decoder[:-1], skips[:-1], strict=True))]
        self.decoder = nn.ModuleList(
            Level(layers.transposed(a, b, 3, activation=False), b, layers)
            for a, b in zip(inputs, decoder, strict=True)
        )
        self.merge = Conv3d(decoder[-1] + skips[-1], merged, 1, bias=False, engine=engine)
        self.relu = FeatureWise(nn.ReLU())
        self.final = Conv3d(merged, out_channels, 1, engine=engine)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to ``[N, out_channels]`` on the same sites."""
        levels: list[SparseTensor] = []
        for level in self.encoder:
            x = level(x)
            levels.append(x)
        y = levels.pop()
        for level in self.decoder:
            skip = levels.pop()
            y = cat(level(y, skip), skip)
        y = self.final(self.relu(fused_convolution(self.merge, y)))
        if self.normalize_features:
            # eps: a zero row stays zero instead of turning into NaN
            y = y.replace(nn.functional.normalize(y.features, dim=1, eps=1e-8))
        return y

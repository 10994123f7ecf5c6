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

from pcnn.models.blocks import (
    ConvFactory,
    ConvNorm,
    NormFactory,
    ResidualBlock,
    convolutions_of,
    scaled,
)
from pcnn.nn import FeatureWise, PlannedModule, cat
from pcnn.nn.fused import fused_convolution
from pcnn.ops import Engine
from pcnn.ranges import Width
from pcnn.tensor import SparseTensor

ENCODER = (32, 64, 128, 256)
DECODER = (128, 64, 64)  # coarse to fine
MERGED = 64


class Level(nn.Module):
    """A convolution with norm and, without an activation between, a residual block."""

    def __init__(self, entry: ConvNorm, block: ResidualBlock) -> None:
        super().__init__()
        self.entry, self.block = entry, block

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> SparseTensor:
        """Features ``[N_in, C_in]`` to ``[N_out, C_out]``, on given sites if there are any."""
        y: SparseTensor = self.block(self.entry(x, out))
        return y


class ResUNet(PlannedModule):
    """U-Net of a convolution and a residual block a level.

    Args:
        in_channels: input features per site.
        out_channels: outputs per site.
        encoder: channels of the encoder's levels, fine to coarse.
        decoder: channels of the decoder's levels, coarse to fine.
        merged: channels of the pointwise layer before the output.
        first_kernel: kernel size of the first convolution.
        normalize_features: scale every output row to unit length.
        conv: makes convolutions.
        conv_transpose: makes transposed convolutions.
        norm: makes norms.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        encoder: tuple[int, ...],
        decoder: tuple[int, ...],
        merged: int,
        first_kernel: int,
        normalize_features: bool,
        conv: ConvFactory,
        conv_transpose: ConvFactory,
        norm: NormFactory,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.normalize_features = normalize_features

        def level(layer: nn.Module, channels: int) -> Level:
            entry = ConvNorm(layer, norm(channels), activation=False)
            return Level(entry, ResidualBlock(channels, channels, conv, norm))

        widths = [in_channels, *encoder]
        self.encoder = nn.ModuleList(
            level(conv(a, b, 3 if n else first_kernel, 2 if n else 1, bias=False), b)
            for n, (a, b) in enumerate(pairwise(widths))
        )
        skips = encoder[-2::-1]
        inputs = [encoder[-1]]
        inputs += [d + s for d, s in zip(decoder[:-1], skips[:-1], strict=True)]
        self.decoder = nn.ModuleList(
            level(conv_transpose(a, b, 3, 2, bias=False), b)
            for a, b in zip(inputs, decoder, strict=True)
        )
        self.merge = conv(decoder[-1] + skips[-1], merged, 1, bias=False)
        self.relu = FeatureWise(nn.ReLU())
        self.final = conv(merged, out_channels, 1, bias=True)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to ``[N, out_channels]`` on the same sites.

        Args:
            x: the input.
        """
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


def ResUNetBN2C(
    in_channels: int = 1,
    out_channels: int = 32,
    first_kernel: Annotated[int, Interval(ge=1, le=9)] = 5,
    normalize_features: bool = True,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    norm: NormFactory = partial(nn.BatchNorm1d, momentum=0.05),
) -> ResUNet:
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
    channels = scaled(width, ENCODER), scaled(width, DECODER), int(width * MERGED)
    parts = *channels, first_kernel, normalize_features, *convolutions_of(engine), norm
    return ResUNet(in_channels, out_channels, *parts)

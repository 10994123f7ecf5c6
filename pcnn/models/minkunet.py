"""MinkUNet42: a U-Net of residual blocks (Choy et al. 2019), as the engine papers benchmark it.

Stem of two 3^3 convolutions; four times a 2^3 convolution of stride 2 and two residual blocks; four
times its transpose, the skip joined behind the upsampled channels, and two residual blocks. 42
convolutions with K > 1 and 21,709,184 convolution weights at width 1 with 4 input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from pcnn.models.blocks import Layers, NormFactory, scaled
from pcnn.nn import FeatureWise, PlannedModule, cat
from pcnn.ops import Engine
from pcnn.ranges import Width
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

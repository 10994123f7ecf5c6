"""SpUNet (Pointcept): the U-Net of MinkUNet34C's depth, as it is written for spconv.

A 5^3 stem; four times a 2^3 convolution of stride 2 that widens, with 2, 3, 4 and 6 residual
blocks; four times its transpose, the skip joined behind, with 2 residual blocks.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from pcnn.models.blocks import ConvFactory, NormFactory
from pcnn.models.minkunet import DECODER, STEM, MinkUNet
from pcnn.nn import Conv3d, ConvTranspose3d
from pcnn.ops import Engine
from pcnn.ranges import Width

ENCODER = (32, 64, 128, 256)
BLOCKS = (2, 3, 4, 6, 2, 2, 2, 2)


def SpUNet(
    in_channels: int = 6,
    out_channels: int | None = 13,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    conv: ConvFactory | None = None,
    conv_transpose: ConvFactory | None = None,
    norm: NormFactory = partial(nn.BatchNorm1d, eps=1e-3, momentum=0.01),
    input_norm: bool = False,
) -> MinkUNet:
    """SpUNet, version v1m1 of Pointcept.

    Args:
        in_channels: input features per site.
        out_channels: classes; ``None`` for no head.
        width: factor on all channels, rounded down; 1 is the published network.
        engine: engine of the default convolutions.
        conv: makes convolutions; ``None`` means `Conv3d` with ``engine``.
        conv_transpose: makes transposed ones; ``None`` means `ConvTranspose3d` with ``engine``.
        norm: makes norms.
        input_norm: standardise the input channels first; not in the published network.
    """
    return MinkUNet(
        in_channels,
        out_channels,
        int(width * STEM),
        tuple(int(width * c) for c in ENCODER),
        tuple(int(width * c) for c in DECODER),
        conv or partial(Conv3d, engine=engine),
        conv_transpose or partial(ConvTranspose3d, engine=engine),
        norm,
        blocks=BLOCKS,
        stem_kernels=(5,),
        widen_on_entry=True,
        input_norm=input_norm,
    )

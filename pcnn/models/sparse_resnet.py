"""SparseResNet21 and SparseResNetLarge: the backbones of CenterPoint (Yin et al. 2021).

Stages of one (strided) convolution and two residual blocks. SparseResNet21 has 3^3 kernels and ends
in a (1, 1, 3) kernel of stride (1, 1, 2): 21 convolutions, 2,691,264 weights. SparseResNetLarge has
5^3 kernels throughout: 20 convolutions, 12,232,000 weights (4 input channels). The backbone of
SECOND, from which they come, has plain convolutions in place of the blocks.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

from torch import nn

from pcnn.models.blocks import ConvFactory, ConvNorm, NormFactory, residual_stack
from pcnn.nn import Conv3d, PlannedModule
from pcnn.nn.conv import Size
from pcnn.ops import Engine
from pcnn.ranges import Width
from pcnn.tensor import SparseTensor

CHANNELS = (16, 32, 64, 128)
#: Kernel and stride of a last convolution that halves z alone.
TAIL = (1, 1, 3), (1, 1, 2)
#: Channels of the stages of SECOND and of its tail, and plain convolutions behind every entry.
SECOND_CHANNELS = (16, 32, 64, 64, 128)
SECOND_DEPTHS = (1, 2, 2, 2)


class SparseResNet(PlannedModule):
    """Encoder of stages, each at half the resolution of the one before.

    Args:
        in_channels: input features per site.
        channels: channels of the stages.
        kernel_size: of every convolution in the stages.
        tail: (kernel size, stride) of a last convolution that keeps the channels, or ``None``.
        conv: makes convolutions.
        norm: makes norms.
        flat_ends: the convolution that enters the last stage has no padding along z, and the tail
            none at all, as in detectors whose volume ends at the ground; ``conv`` then takes
            ``padding``.
        depths: plain convolutions behind the entry of every stage, in place of two residual blocks.
        tail_channels: of the tail's output; ``None``: as many as of its input.

    Attributes:
        channels: of every stage's output.
        strides: of every stage against the one before.
    """

    def __init__(
        self,
        in_channels: int,
        channels: tuple[int, ...],
        kernel_size: int,
        tail: tuple[Size, Size] | None,
        conv: ConvFactory,
        norm: NormFactory,
        flat_ends: bool = False,
        depths: tuple[int, ...] | None = None,
        tail_channels: int | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        widths = [in_channels, *channels]
        strides: list[Size] = [2 if number else 1 for number in range(len(channels))]
        stages: list[nn.Module] = []
        for number, (a, b) in enumerate(pairwise(widths)):
            half = kernel_size // 2
            last = flat_ends and number == len(channels) - 1
            padding: dict[str, Any] = {"padding": (half, half, 0)} if last else {}
            entry = conv(a, b, kernel_size, strides[number], bias=False, **padding)
            if depths is None:
                blocks = residual_stack(b, b, 2, conv, norm, kernel_size)
            else:
                plain = (conv(b, b, kernel_size, bias=False) for _ in range(depths[number]))
                blocks = nn.Sequential(*(ConvNorm(layer, norm(b)) for layer in plain))
            stages.append(nn.Sequential(ConvNorm(entry, norm(b)), blocks))
        if tail is not None:
            wide = tail_channels or widths[-1]
            padding = {"padding": 0} if flat_ends else {}
            last_layer = conv(widths[-1], wide, *tail, bias=False, **padding)
            stages.append(ConvNorm(last_layer, norm(wide)))
            widths.append(wide)
            strides.append(tail[1])
        self.stages = nn.ModuleList(stages)
        self.channels = tuple(widths[1:])
        self.strides = tuple(strides)

    def forward(self, x: SparseTensor) -> list[SparseTensor]:
        """Outputs of all stages, fine to coarse."""
        outputs = []
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return outputs


def SparseResNet21(
    in_channels: int = 4,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    conv: ConvFactory | None = None,
    norm: NormFactory = nn.BatchNorm1d,
) -> SparseResNet:
    """SparseResNet21: 3^3 kernels, and a last convolution that halves z alone."""
    make = conv or partial(Conv3d, engine=engine)
    widths = tuple(int(width * c) for c in CHANNELS)
    return SparseResNet(in_channels, widths, 3, TAIL, make, norm)


def VoxelResBackbone(
    in_channels: int = 5,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    norm: NormFactory = partial(nn.BatchNorm1d, eps=1e-3, momentum=0.01),
) -> SparseResNet:
    """The backbone of CenterPoint as OpenPCDet has it (``VoxelResBackBone8x``).

    SparseResNet21 with other paddings along z. It wants voxels whose sites are ``reached`` in a
    volume (``downsampling``, ``spatial_shape``).

    Args:
        in_channels: input features per site.
        width: factor on all channels, rounded down; 1 is the published network.
        engine: engine of the convolutions.
        norm: makes norms.
    """
    make: Any = partial(Conv3d, engine=engine)
    widths = tuple(int(width * c) for c in CHANNELS)
    return SparseResNet(in_channels, widths, 3, TAIL, make, norm, True)


def VoxelBackbone(
    in_channels: int = 4,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    norm: NormFactory = partial(nn.BatchNorm1d, eps=1e-3, momentum=0.01),
) -> SparseResNet:
    """The backbone of SECOND (Yan et al. 2018) as OpenPCDet has it (``VoxelBackBone8x``).

    Plain convolutions, with the paddings and sites of `VoxelResBackbone`.

    Args:
        in_channels: input features per site.
        width: factor on all channels, rounded down; 1 is the published network.
        engine: engine of the convolutions.
        norm: makes norms.
    """
    make: Any = partial(Conv3d, engine=engine)
    *widths, wide = (int(width * c) for c in SECOND_CHANNELS)
    return SparseResNet(in_channels, tuple(widths), 3, TAIL, make, norm, True, SECOND_DEPTHS, wide)


def SparseResNetLarge(
    in_channels: int = 4,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    conv: ConvFactory | None = None,
    norm: NormFactory = nn.BatchNorm1d,
) -> SparseResNet:
    """SparseResNetLarge (CenterPoint-Large): 5^3 kernels."""
    make = conv or partial(Conv3d, engine=engine)
    return SparseResNet(in_channels, tuple(int(width * c) for c in CHANNELS), 5, None, make, norm)

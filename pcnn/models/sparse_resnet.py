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

from torch import Tensor, nn

from pcnn.models.blocks import (
    ConvFactory,
    ConvNorm,
    NormFactory,
    convolutions_of,
    residual_stack,
    scaled,
)
from pcnn.nn import FeatureWise, GlobalAvgPool, PlannedModule, cat
from pcnn.nn.conv import Size
from pcnn.ops import Engine
from pcnn.ranges import Channels, Width
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
    norm: NormFactory = nn.BatchNorm1d,
) -> SparseResNet:
    """SparseResNet21: 3^3 kernels, and a last convolution that halves z alone."""
    make, _ = convolutions_of(engine)
    return SparseResNet(in_channels, scaled(width, CHANNELS), 3, TAIL, make, norm)


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
    make, _ = convolutions_of(engine)
    return SparseResNet(in_channels, scaled(width, CHANNELS), 3, TAIL, make, norm, True)


def VoxelBackbone(
    in_channels: int = 4,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    norm: NormFactory = partial(nn.BatchNorm1d, eps=1e-3, momentum=0.01),
) -> SparseResNet:
    """The backbone of SECOND (Yan et al. 2018) as OpenPCDet has it (``VoxelBackBone8x``).

    Plain convolutions, with the arguments, paddings and sites of `VoxelResBackbone`.
    """
    make, _ = convolutions_of(engine)
    *widths, wide = scaled(width, SECOND_CHANNELS)
    return SparseResNet(in_channels, tuple(widths), 3, TAIL, make, norm, True, SECOND_DEPTHS, wide)


def SparseResNetLarge(
    in_channels: int = 4,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    norm: NormFactory = nn.BatchNorm1d,
) -> SparseResNet:
    """SparseResNetLarge (CenterPoint-Large): 5^3 kernels."""
    make, _ = convolutions_of(engine)
    return SparseResNet(in_channels, scaled(width, CHANNELS), 5, None, make, norm)


class SparseResNetSegmentation(PlannedModule):
    """A `SparseResNet` with a light decoder back to the sites of its input.

    At each step up, a transposed convolution whose kernel is its stride places the coarser features
    on the sites of the stage below. Every fine site has one parent, so this costs one product a
    site. That stage's own features are joined behind them, and a 1x1 convolution mixes both:
    ``h_s = f(W_s [up(h_(s+1)), x_s])``, with a norm and ReLU after either convolution. A linear
    layer turns ``h_0`` into logits. All of the decoder has ``hidden`` channels and no kernel that
    looks at neighbours: those are the encoder's.

    Args:
        backbone: the encoder.
        out_channels: classes.
        hidden: channels of the decoder.
        norm: makes norms.
        engine: engine of the decoder's convolutions.
    """

    def __init__(
        self,
        backbone: SparseResNet,
        out_channels: int,
        hidden: Channels = 64,
        norm: NormFactory = nn.BatchNorm1d,
        engine: str | Engine | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = backbone.in_channels
        self.backbone = backbone
        make, raised = convolutions_of(engine)
        *skips, last = backbone.channels
        inputs = [last, *(hidden for _ in skips[1:])]  # channels of what is raised, coarse to fine
        self.up = nn.ModuleList(
            ConvNorm(raised(c, hidden, stride, stride, bias=False), norm(hidden))
            for c, stride in zip(inputs, backbone.strides[:0:-1], strict=True)
        )
        self.join = nn.ModuleList(
            ConvNorm(make(hidden + c, hidden, 1, bias=False), norm(hidden)) for c in skips[::-1]
        )
        self.head = FeatureWise(nn.Linear(hidden if skips else last, out_channels))

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to logits ``[N, out_channels]`` on the same sites."""
        *skips, hidden = self.backbone(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips), strict=True):
            hidden = join(cat(up(hidden, skip), skip))
        out: SparseTensor = self.head(hidden)
        return out


class SparseResNetClassification(PlannedModule):
    """A `SparseResNet`, the mean of its last stage over each cloud, and a linear layer.

    An empty cloud has zeros for a mean, so its logits are the layer's bias.

    Args:
        backbone: the encoder.
        out_channels: classes.
    """

    def __init__(self, backbone: SparseResNet, out_channels: int) -> None:
        super().__init__()
        self.in_channels = backbone.in_channels
        self.backbone = backbone
        self.average = GlobalAvgPool()
        self.head = nn.Linear(backbone.channels[-1], out_channels)

    def forward(self, x: SparseTensor) -> Tensor:
        """Features ``[N, in_channels]`` to one row of logits per cloud ``[B, out_channels]``."""
        logits: Tensor = self.head(self.average(self.backbone(x)[-1]))
        return logits


def sparse_resnet_for(
    task: str,
    backbone: SparseResNet,
    out_channels: int,
    hidden: Channels = 64,
    engine: str | Engine | None = None,
) -> nn.Module:
    """The network of a task, ``segmentation`` or ``classification``, around a backbone.

    Args:
        task: of the network.
        backbone: the encoder.
        out_channels: classes.
        hidden: channels of the decoder; a classification has none.
        engine: engine of the decoder.

    Raises:
        ValueError: another task.
    """
    if task == "segmentation":
        return SparseResNetSegmentation(backbone, out_channels, hidden, engine=engine)
    if task == "classification":
        return SparseResNetClassification(backbone, out_channels)
    raise ValueError(f"task must be segmentation or classification, got {task!r}")

"""ResNet18 (He et al. 2016), and SparseResNet21 and SparseResNetLarge, on sparse tensors.

ResNet18 is the network of the PointCNN++ benchmark, the others are the backbones of CenterPoint
(Yin et al. 2021): stages of one (strided) convolution and two residual blocks. SparseResNet21 has
3^3 kernels and ends in a (1, 1, 3) kernel of stride (1, 1, 2): 21 convolutions, 2,691,264 weights.
SparseResNetLarge has 5^3 kernels throughout: 20 convolutions, 12,232,000 weights (of 4 channels).
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from pcnn.models.blocks import Layers, NormFactory, scaled
from pcnn.nn import FeatureWise, GlobalAvgPool, MaxPool3d, PlannedModule, cat
from pcnn.nn.conv import Size
from pcnn.ops import Engine
from pcnn.ranges import Channels, Width
from pcnn.tensor import SparseTensor

CHANNELS = (16, 32, 64, 128)
#: Kernel and stride of a last convolution that halves z alone.
TAIL = (1, 1, 3), (1, 1, 2)


class SparseResNet(PlannedModule):
    """Encoder of stages, each at half the resolution of the one before.

    Args:
        in_channels: input features per site.
        width: factor on all channels, rounded down; 1 is the published network.
        engine: engine of the convolutions.
        norm: makes norms.
        kernel_size: of every convolution in the stages.
        tail: whether a last convolution halves z alone.

    Attributes:
        channels: of every stage's output.
        strides: of every stage against the one before.
    """

    def __init__(
        self,
        in_channels: int,
        width: float = 1.0,
        engine: str | Engine | None = None,
        norm: NormFactory = nn.BatchNorm1d,
        kernel_size: int = 3,
        tail: bool = True,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        layers, channels = Layers(engine, norm), scaled(width, CHANNELS)
        strides: list[Size] = [2 if number else 1 for number in range(len(channels))]
        stages: list[nn.Module] = []
        for number, (a, b) in enumerate(pairwise([in_channels, *channels])):
            entry = layers.conv(a, b, kernel_size, strides[number])
            stages.append(nn.Sequential(entry, layers.blocks(b, b, 2, kernel_size)))
        if tail:
            wide = channels[-1]
            stages.append(layers.conv(wide, wide, *TAIL))
            channels, strides = (*channels, wide), [*strides, TAIL[1]]
        self.stages = nn.ModuleList(stages)
        self.channels, self.strides = channels, tuple(strides)

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
    return SparseResNet(in_channels, width, engine, norm)


def SparseResNetLarge(
    in_channels: int = 4,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    norm: NormFactory = nn.BatchNorm1d,
) -> SparseResNet:
    """SparseResNetLarge (CenterPoint-Large): 5^3 kernels."""
    return SparseResNet(in_channels, width, engine, norm, kernel_size=5, tail=False)


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
        layers = Layers(engine, norm)
        *skips, last = backbone.channels
        inputs = [last, *(hidden for _ in skips[1:])]  # channels of what is raised, coarse to fine
        self.up = nn.ModuleList(
            layers.transposed(c, hidden, stride, stride)
            for c, stride in zip(inputs, backbone.strides[:0:-1], strict=True)
        )
        self.join = nn.ModuleList(layers.conv(hidden + c, hidden, 1) for c in skips[::-1])
        self.head = FeatureWise(nn.Linear(hidden if skips else last, out_channels))

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to logits ``[N, out_channels]`` on the same sites."""
        *skips, hidden = self.backbone(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips), strict=True):
            hidden = join(cat(up(hidden, skip), skip))
        out: SparseTensor = self.head(hidden)
        return out


class ResNet18(PlannedModule):
    """Stem of stride 2, max pooling of stride 2, four stages of two residual blocks.

    Args:
        in_channels: input features per site.
        out_channels: classes.
        width: factor on all channels, rounded down.
        engine: engine of the convolutions and of the pooling layer.
        norm: makes norms.
    """

    def __init__(
        self,
        in_channels: int = 4,
        out_channels: int = 11,
        width: Width = 1.0,
        engine: str | Engine | None = None,
        norm: NormFactory = nn.BatchNorm1d,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        layers, channels = Layers(engine, norm), scaled(width, (64, 128, 256, 512))
        self.stem = layers.conv(in_channels, channels[0], 5, 2)
        self.pool = MaxPool3d(3, 2, engine=engine)
        widths = pairwise([channels[0], *channels])
        self.stages = nn.Sequential(
            *(layers.blocks(a, b, 2, 3, 2 if n else 1) for n, (a, b) in enumerate(widths))
        )
        self.average = GlobalAvgPool()
        self.head = nn.Linear(channels[-1], out_channels)

    def features(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N_out, C]`` of the last stage."""
        out: SparseTensor = self.stages(self.pool(self.stem(x)))
        return out

    def forward(self, x: SparseTensor) -> Tensor:
        """Features ``[N, in_channels]`` to one row of logits per cloud ``[B, out_channels]``."""
        logits: Tensor = self.head(self.average(self.features(x)))
        return logits

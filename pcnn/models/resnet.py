"""ResNet18 (He et al. 2016) on sparse tensors: the network of the PointCNN++ benchmark."""

from __future__ import annotations

from torch import Tensor, nn

from pcnn.models.blocks import (
    ConvFactory,
    ConvNorm,
    NormFactory,
    ResidualBlock,
    convolutions_of,
    scaled,
)
from pcnn.nn import GlobalAvgPool, MaxPool3d, PlannedModule
from pcnn.ops import Engine
from pcnn.ranges import Width
from pcnn.tensor import SparseTensor

CHANNELS = (64, 128, 256, 512)


class ResNet(PlannedModule):
    """Stem of stride 2, max pooling of stride 2, four stages of residual blocks.

    Args:
        in_channels: input features per site.
        out_channels: classes.
        channels: channels of the stages; every stage after the first has stride 2.
        blocks: residual blocks of the stages.
        conv: makes convolutions.
        norm: makes norms.
        engine: engine of the pooling layer.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        channels: tuple[int, ...],
        blocks: tuple[int, ...],
        conv: ConvFactory,
        norm: NormFactory,
        engine: str | Engine | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        stem = channels[0]
        self.stem = ConvNorm(conv(in_channels, stem, 5, 2, bias=False), norm(stem))
        self.pool = MaxPool3d(3, 2, engine=engine)
        widths = [stem, *channels]
        stages = []
        for number, count in enumerate(blocks):
            a, b = widths[number], widths[number + 1]
            first = ResidualBlock(a, b, conv, norm, stride=2 if number else 1)
            rest = (ResidualBlock(b, b, conv, norm) for _ in range(count - 1))
            stages.append(nn.Sequential(first, *rest))
        self.stages = nn.Sequential(*stages)
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


def ResNet18(
    in_channels: int = 4,
    out_channels: int = 11,
    width: Width = 1.0,
    engine: str | Engine | None = None,
    norm: NormFactory = nn.BatchNorm1d,
) -> ResNet:
    """ResNet18: two residual blocks in each of four stages; channels scaled by ``width``."""
    parts = scaled(width, CHANNELS), (2, 2, 2, 2), convolutions_of(engine)[0], norm
    return ResNet(in_channels, out_channels, *parts, engine)

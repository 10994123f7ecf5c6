"""ResNet18 (He et al. 2016) on sparse tensors: the network of the PointCNN++ benchmark."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from pcnn.models.blocks import Layers, NormFactory, scaled
from pcnn.nn import GlobalAvgPool, MaxPool3d, PlannedModule
from pcnn.ops import Engine
from pcnn.ranges import Width
from pcnn.tensor import SparseTensor

CHANNELS = (64, 128, 256, 512)


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
        layers, channels = Layers(engine, norm), scaled(width, CHANNELS)
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

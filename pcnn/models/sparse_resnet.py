"""SparseResNet21 and SparseResNetLarge: the backbones of CenterPoint (Yin et al. 2021).

Stages of one (strided) convolution and two residual blocks. SparseResNet21 has 3^3 kernels and ends
in a (1, 1, 3) kernel of stride (1, 1, 2): 21 convolutions, 2,691,264 weights. SparseResNetLarge has
5^3 kernels throughout: 20 convolutions, 12,232,000 weights (4 input channels).
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from torch import nn

from pcnn.models.blocks import ConvFactory, ConvNorm, NormFactory, residual_stack
from pcnn.nn import Conv3d, PlannedModule, normalize, unpool
from pcnn.nn.conv import Size
from pcnn.ops import Engine, resolve
from pcnn.tensor import SparseTensor

CHANNELS = (16, 32, 64, 128)


class SparseResNet(PlannedModule):
    """Encoder of stages, each at half the resolution of the one before.

    Args:
        in_channels: input features per site.
        channels: channels of the stages.
        kernel_size: of every convolution in the stages.
        tail: (kernel size, stride) of a last convolution that keeps the channels, or ``None``.
        conv: makes convolutions.
        norm: makes norms.
    """

    def __init__(
        self,
        in_channels: int,
        channels: tuple[int, ...],
        kernel_size: int,
        tail: tuple[Size, Size] | None,
        conv: ConvFactory,
        norm: NormFactory,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        widths = [in_channels, *channels]
        stages: list[nn.Module] = []
        for number, (a, b) in enumerate(pairwise(widths)):
            entry = conv(a, b, kernel_size, 2 if number else 1, bias=False)
            blocks = residual_stack(b, b, 2, conv, norm, kernel_size)
            stages.append(nn.Sequential(ConvNorm(entry, norm(b)), blocks))
        if tail is not None:
            last = widths[-1]
            stages.append(ConvNorm(conv(last, last, *tail, bias=False), norm(last)))
            widths.append(last)
        self.stages = nn.ModuleList(stages)
        self.channels = tuple(widths[1:])

    def forward(self, x: SparseTensor) -> list[SparseTensor]:
        """Outputs of all stages, fine to coarse."""
        outputs = []
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return outputs


def SparseResNet21(
    in_channels: int = 4,
    width: float = 1.0,
    engine: str | Engine | None = None,
    conv: ConvFactory | None = None,
    norm: NormFactory = nn.BatchNorm1d,
) -> SparseResNet:
    """SparseResNet21: 3^3 kernels, and a last convolution that halves z alone."""
    make = conv or partial(Conv3d, engine=engine)
    widths = tuple(int(width * c) for c in CHANNELS)
    return SparseResNet(in_channels, widths, 3, ((1, 1, 3), (1, 1, 2)), make, norm)


def SparseResNetLarge(
    in_channels: int = 4,
    width: float = 1.0,
    engine: str | Engine | None = None,
    conv: ConvFactory | None = None,
    norm: NormFactory = nn.BatchNorm1d,
) -> SparseResNet:
    """SparseResNetLarge (CenterPoint-Large): 5^3 kernels."""
    make = conv or partial(Conv3d, engine=engine)
    return SparseResNet(in_channels, tuple(int(width * c) for c in CHANNELS), 5, None, make, norm)


class SparseResNetSegmentation(PlannedModule):
    """A `SparseResNet` with a light decoder of linear layers.

    From coarse to fine, the features of a site are those of the coarse site above it plus a linear
    image of its own stage: ``h_s = unpool(h_(s+1)) + A_s x_s``; a norm, ReLU and a linear layer
    turn ``h_0`` into logits.

    Args:
        backbone: the encoder.
        out_channels: classes.
        hidden: channels of the decoder.
        norm: makes the norm of the decoder.
        engine: whose map builder finds the coarse site above a fine one.
    """

    def __init__(
        self,
        backbone: SparseResNet,
        out_channels: int,
        hidden: int = 64,
        norm: NormFactory = nn.BatchNorm1d,
        engine: str | Engine | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = backbone.in_channels
        self.backbone = backbone
        self.engine = resolve(engine)
        self.lateral = nn.ModuleList(nn.Linear(c, hidden) for c in backbone.channels)
        self.norm = norm(hidden)
        self.head = nn.Linear(hidden, out_channels)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to logits ``[N, out_channels]`` on the same sites."""
        stages = self.backbone(x)
        hidden: SparseTensor | None = None
        for stage, lateral in zip(reversed(stages), reversed(self.lateral), strict=True):
            features = lateral(stage.features)
            if hidden is not None:
                features = features + unpool(hidden, stage.geometry, self.engine).features
            hidden = stage.replace(features)
        assert hidden is not None
        features = nn.functional.relu(normalize(self.norm, hidden.features))
        return hidden.replace(self.head(features))

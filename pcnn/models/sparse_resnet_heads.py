"""Heads that make a `SparseResNet`, an encoder, serve a task: a light decoder, or pooling."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from pcnn.models.blocks import ConvFactory, ConvNorm, NormFactory
from pcnn.models.sparse_resnet import SparseResNet
from pcnn.nn import Conv3d, ConvTranspose3d, FeatureWise, GlobalAvgPool, PlannedModule, cat
from pcnn.ops import Engine
from pcnn.ranges import Channels
from pcnn.tensor import SparseTensor


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
        engine: engine of the decoder's default convolutions.
        conv: makes convolutions; ``None`` means `Conv3d` with ``engine``.
        conv_transpose: makes transposed ones; ``None`` means `ConvTranspose3d` with ``engine``.
    """

    def __init__(
        self,
        backbone: SparseResNet,
        out_channels: int,
        hidden: Channels = 64,
        norm: NormFactory = nn.BatchNorm1d,
        engine: str | Engine | None = None,
        conv: ConvFactory | None = None,
        conv_transpose: ConvFactory | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = backbone.in_channels
        self.backbone = backbone
        make = conv or partial(Conv3d, engine=engine)
        raised = conv_transpose or partial(ConvTranspose3d, engine=engine)
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
    """The network of a task around a backbone.

    Args:
        task: ``segmentation`` or ``classification``.
        backbone: the encoder.
        out_channels: classes.
        hidden: channels of the decoder; a classification has none.
        engine: engine of the decoder.

    Raises:
        ValueError: a task that such a network does not serve.
    """
    if task == "segmentation":
        return SparseResNetSegmentation(backbone, out_channels, hidden, engine=engine)
    if task == "classification":
        return SparseResNetClassification(backbone, out_channels)
    raise ValueError(
        f"a SparseResNet serves the tasks segmentation and classification, not {task!r}"
    )

"""LitePT (Yue et al. 2025): convolutions at fine levels, attention at the two coarsest.

Five levels, each at half the resolution of the one before, entered by a linear layer and maximum
pooling. Blocks of the first three are a 3^3 convolution, a linear layer and a norm beside a
shortcut; those of the last two attention and a perceptron, without any convolution: rotary encoding
tells them where sites stand. The decoder has no blocks: it adds what comes from below to the skip.
12.7 million parameters with 4 input channels and 19 classes.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad, scaled_dot_product_attention

from pcnn.models.blocks import ConvFactory, ConvNorm, LinearNorm, NormFactory, convolutions_of
from pcnn.nn import FeatureWise, MaxPool3d, PlannedModule, normalize, unpool
from pcnn.ops import Engine
from pcnn.ops.space_curves import hilbert_table
from pcnn.ops.windows import ORDERS, Windows
from pcnn.ranges import Count, PartialShare, Width
from pcnn.tensor import SparseTensor

ENCODER = (36, 72, 144, 252, 504)
DECODER = (72, 72, 144, 252)  # fine to coarse
BLOCKS = (2, 2, 2, 6, 2)
#: Levels with convolutions; the others have attention.
CONVOLVED = 3
#: Channels of a head.
HEAD = 18


#: Cosines and sines of the angles that rows are turned by, ``[N, 1, 3, pairs]`` float32 each.
Angles = tuple[Tensor, Tensor]

#: Head dimensions are padded to a multiple of this, which the fused kernels of torch ask for.
_ALIGNED = 8


def rotary_angles(positions: Tensor, channels: int, base: float = 100.0) -> Angles:
    """Angles of the rotary encoding of places in space (PointROPE, Yue et al. 2025).

    A third of the channels of a head goes with each axis. Their first half and their second half
    are pairs, and pair i is turned by ``position * base^(-i / pairs)``. So the product of a query
    and a key depends on the difference of their positions alone.
    """
    if channels < 6 or channels % 6:
        raise ValueError(f"channels of a head must be a multiple of 6, got {channels}")
    pairs = channels // 6
    exponent = torch.arange(pairs, device=positions.device) / -pairs
    angle = (positions[:, :, None] * base**exponent)[:, None]  # [N, 1, 3, pairs]
    return angle.cos(), angle.sin()


def rotated(x: Tensor, angles: Angles) -> Tensor:
    """``[N, H, D]`` turned by the angles of its rows, in their dtype; returned in its own."""
    cos, sin = angles
    u, v = x.to(cos.dtype).unflatten(2, (3, 2, -1)).unbind(3)  # [N, H, 3, pairs] each
    return torch.stack([u * cos - v * sin, v * cos + u * sin], dim=3).flatten(2).to(x.dtype)


class WindowAttention(nn.Module):
    """Multi-head attention of every site to the sites of its window."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(f"{heads} heads do not divide {channels} channels")
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.project = nn.Linear(channels, channels)

    def forward(self, features: Tensor, windows: Windows, angles: Angles, order: int) -> Tensor:
        """Features ``[N, C]`` to ``[N, C]``."""
        sites, channels = features.shape
        q, k, v = self.qkv(features).view(sites, 3, self.heads, -1).unbind(1)  # [N, H, D]
        size = q.shape[2]
        every = torch.stack([rotated(q, angles), rotated(k, angles), v], dim=1)
        every = pad(every, (0, -size % _ALIGNED))
        rows = windows.rows[order]  # [M, W]
        inside = every.index_select(0, rows.flatten()).view(*rows.shape, *every.shape[1:])
        q, k, v = inside.permute(2, 0, 3, 1, 4).unbind()  # [M, H, W, D]
        keys = windows.there[:, None, None, :]  # [M, 1, 1, W]
        out = scaled_dot_product_attention(q, k, v, keys, scale=size**-0.5)
        out = out[..., :size].transpose(1, 2).reshape(-1, channels)  # [M * W, C]
        found: Tensor = self.project(out.index_select(0, windows.place[order]))
        return found


def normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """Layer norm of features ``[N, C]`` in the dtype of its weight, returned in their own.

    Norms stay in float32 where a network runs in half precision, and torch's takes one dtype.
    """
    y: Tensor = norm(x.to(norm.weight.dtype))
    return y.to(x.dtype)


class ConvBlock(nn.Module):
    """``x + norm(linear(conv(x)))``, without an activation."""

    def __init__(self, channels: int, conv: ConvFactory) -> None:
        super().__init__()
        self.conv = conv(channels, channels, 3, bias=True)
        self.linear = FeatureWise(nn.Linear(channels, channels))
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, C]`` to ``[N, C]``."""
        y: SparseTensor = self.linear(self.conv(x))
        return x.replace(x.features + normed(self.norm, y.features))


class AttentionBlock(nn.Module):
    """A norm, then attention and a perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, channels: int, drop_path: float) -> None:
        super().__init__()
        self.entry, self.first, self.second = (nn.LayerNorm(channels) for _ in range(3))
        self.attention = WindowAttention(channels, channels // HEAD)
        wide = 4 * channels
        self.perceptron = nn.Sequential(
            nn.Linear(channels, wide), nn.GELU(), nn.Linear(wide, channels)
        )
        self.drop = nn.Dropout1d(drop_path)  # of whole rows

    def forward(self, x: Tensor, windows: Windows, angles: Angles, order: int) -> Tensor:
        """Features ``[N, C]`` to ``[N, C]``; N is not 0."""
        x = normed(self.entry, x)
        x = x + self.drop(self.attention(normed(self.first, x), windows, angles, order))
        y: Tensor = x + self.drop(self.perceptron(normed(self.second, x)))
        return y


class Down(nn.Module):
    """A linear layer, the maximum of every 2^3 cells, a norm and GELU."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        norm: NormFactory,
        engine: str | Engine | None,
    ) -> None:
        super().__init__()
        self.linear = FeatureWise(nn.Linear(in_channels, out_channels))
        self.pool = MaxPool3d(2, 2, engine=engine)
        self.norm = norm(out_channels)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, C_in]`` to ``[N_coarse, C_out]``."""
        y: SparseTensor = self.pool(self.linear(x))
        normed = normalize(self.norm, y.features, y.geometry.count)
        return y.replace(gelu(normed))


class LitePT(PlannedModule):
    """U-Net of convolutions at fine levels and attention at coarse ones.

    Args:
        in_channels: input features per site.
        out_channels: outputs per site; ``None`` leaves the decoder's features without a head.
        encoder: channels of the levels, fine to coarse.
        decoder: channels of the decoder's levels, fine to coarse.
        blocks: blocks of the levels.
        convolved: levels with convolutions, from the finest on; the others have attention, and
            channels that are multiples of 18.
        window: sites that attend to one another.
        drop_path: share of the sites at which training leaves out a branch of the last block; from
            the first block on it grows up to this.
        shuffle_orders: in training, draw along which curve the windows of every block are cut.
        conv: makes convolutions.
        norm: makes norms of the stem, the poolings and the decoder; blocks have layer norms.
        engine: engine of pooling and unpooling.
        input_norm: standardise the input channels by a norm of their own.
    """

    _curve: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None,
        encoder: tuple[int, ...],
        decoder: tuple[int, ...],
        blocks: tuple[int, ...],
        convolved: int,
        window: int,
        drop_path: float,
        shuffle_orders: bool,
        conv: ConvFactory,
        norm: NormFactory,
        engine: str | Engine | None = None,
        input_norm: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels, self.window, self.engine = in_channels, window, engine
        self.shuffle_orders = shuffle_orders
        self.input = FeatureWise(norm(in_channels) if input_norm else nn.Identity())
        entry = conv(in_channels, encoder[0], 5, bias=False)
        self.stem = ConvNorm(entry, norm(encoder[0]), activation=False)
        self.down = nn.ModuleList(Down(a, b, norm, engine) for a, b in pairwise(encoder))
        shares = iter(torch.linspace(0, drop_path, sum(blocks)).tolist())

        def block(channels: int, level: int) -> nn.Module:
            share = next(shares)
            return (
                ConvBlock(channels, conv) if level < convolved else AttentionBlock(channels, share)
            )

        self.blocks = nn.ModuleList(
            nn.ModuleList(block(channels, level) for _ in range(count))
            for level, (channels, count) in enumerate(zip(encoder, blocks, strict=True))
        )
        below = [*decoder[1:], encoder[-1]]
        self.up = nn.ModuleList(
            LinearNorm(a, b, norm, nn.GELU()) for a, b in zip(below, decoder, strict=True)
        )
        self.skip = nn.ModuleList(
            LinearNorm(a, b, norm, nn.GELU()) for a, b in zip(encoder, decoder, strict=False)
        )
        self.head: nn.Module = nn.Identity()
        if out_channels is not None:
            self.head = FeatureWise(nn.Linear(decoder[0], out_channels))
        self.register_buffer("_curve", hilbert_table(), persistent=False)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, in_channels]`` to ``[N, out_channels]`` on the same sites."""
        x = self.stem(self.input(x))
        x = x.replace(gelu(x.features))
        levels: list[SparseTensor] = []
        for level, blocks in enumerate(self.blocks):
            x = self.down[level - 1](x) if level else x
            levels.append(self._attended(x, blocks) if _attends(blocks) else _through(blocks, x))
            x = levels[-1]
        y = levels.pop()
        for up, skip in zip(reversed(self.up), reversed(self.skip), strict=True):
            beside: SparseTensor = skip(levels.pop())
            y = beside + unpool(up(y), beside.geometry, self.engine)
        out: SparseTensor = self.head(y)
        return out

    def _attended(self, x: SparseTensor, blocks: nn.Module) -> SparseTensor:
        features = x.features
        if not len(features):
            # still a part of the graph, so that every parameter has a gradient
            return x.replace(features + sum(p.sum() for p in blocks.parameters()) * 0)
        windows = Windows.of(x.geometry, self.window, self._curve)
        angles = rotary_angles(windows.positions, HEAD)
        if self.training and self.shuffle_orders:
            windows = windows.shuffled()
        for number, block in enumerate(blocks.children()):
            features = block(features, windows, angles, number % len(ORDERS))
        return x.replace(features)


def _attends(blocks: nn.Module) -> bool:
    return any(isinstance(block, AttentionBlock) for block in blocks.children())


def _through(blocks: nn.Module, x: SparseTensor) -> SparseTensor:
    for block in blocks.children():
        x = block(x)
    return x


def LitePTS(
    in_channels: int = 4,
    out_channels: int | None = 19,
    width: Width = 1.0,
    window: Count = 1024,
    drop_path: PartialShare = 0.3,
    shuffle_orders: bool = True,
    engine: str | Engine | None = None,
    conv: ConvFactory | None = None,
    norm: NormFactory = partial(nn.BatchNorm1d, eps=1e-3, momentum=0.01),
    input_norm: bool = False,
) -> LitePT:
    """LitePT-S.

    Other arguments are those of `LitePT`.

    Args:
        width: factor on all channels; those of levels with attention are rounded down to heads of
            18 channels, at least one. 1 is the published network.
    """
    encoder = [max(1, int(width * c)) for c in ENCODER]
    encoder[CONVOLVED:] = [max(1, c // HEAD) * HEAD for c in encoder[CONVOLVED:]]
    return LitePT(
        in_channels,
        out_channels,
        tuple(encoder),
        tuple(max(1, int(width * c)) for c in DECODER),
        BLOCKS,
        CONVOLVED,
        window,
        drop_path,
        shuffle_orders,
        convolutions_of(engine, conv)[0],
        norm,
        engine,
        input_norm,
    )

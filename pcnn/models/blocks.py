"""Layers and blocks that every network is assembled from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from pcnn.geometry import Geometry
from pcnn.nn import Conv3d, ConvTranspose3d, add, normalize
from pcnn.nn.conv import Size
from pcnn.nn.fused import FoldedNorm, fused_convolution, is_hooked
from pcnn.ops import Engine
from pcnn.tensor import SparseTensor

#: Norm of a number of channels, on features ``[N, C]``.
NormFactory = Callable[[int], nn.Module]


def scaled(width: float, channels: tuple[int, ...]) -> tuple[int, ...]:
    """Channels of a network of another width, rounded down."""
    return tuple(int(width * one) for one in channels)


class ConvNorm(nn.Module):
    """Convolution without bias, norm, and ReLU unless ``activation`` is off."""

    def __init__(self, conv: nn.Module, norm: nn.Module, activation: bool = True) -> None:
        super().__init__()
        self.conv, self.norm, self.activation = conv, norm, activation
        self._folded = FoldedNorm()

    def forward(self, x: SparseTensor, out: SparseTensor | Geometry | None = None) -> SparseTensor:
        """Features ``[N_in, C_in]`` to ``[N_out, C_out]``."""
        return self.added_to(None, x, out, self.activation)

    def added_to(
        self,
        residual: SparseTensor | None,
        x: SparseTensor,
        out: SparseTensor | Geometry | None = None,
        relu: bool = True,
    ) -> SparseTensor:
        """``relu(norm(conv(x)) + residual)``, with ReLU if ``relu``; ``activation`` is not used."""
        parts: dict[str, Any] = self._modules  # self.conv costs ten times as much
        conv, norm = parts["conv"], parts["norm"]
        return fused_convolution(conv, x, out, norm, residual, relu, self._folded)

    def train(self, mode: bool = True) -> ConvNorm:
        """Switch between training and evaluation; the folded norm is computed again after it."""
        # covers changes that torch does not record, as by `parameter.data.mul_`
        self._folded.clear()
        return super().train(mode)


class LinearNorm(nn.Module):
    """A linear layer, its norm and an activation, on every site by itself."""

    def __init__(
        self, in_channels: int, out_channels: int, norm: NormFactory, activation: nn.Module
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)
        self.norm, self.activation = norm(out_channels), activation

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, C_in]`` to ``[N, C_out]``."""
        normed = normalize(self.norm, self.linear(x.features), x.geometry.count)
        return x.replace(self.activation(normed))


class ResidualBlock(nn.Module):
    """Two 3^3 convolutions and a shortcut (He et al. 2016): ``relu(f(x) + s(x))``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        layers: Layers,
        kernel_size: Size = 3,
        stride: int = 1,
    ) -> None:
        super().__init__()
        channels = in_channels, out_channels
        self.first = layers.conv(*channels, kernel_size, stride)
        self.second = layers.conv(out_channels, out_channels, kernel_size, activation=False)
        self.shortcut: nn.Module = nn.Identity()
        if in_channels != out_channels or stride != 1:
            self.shortcut = layers.conv(*channels, 1, stride, activation=False)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N_in, C_in]`` to ``[N_out, C_out]``."""
        parts: dict[str, Any] = self._modules  # self.first costs ten times as much
        first, second, shortcut = parts["first"], parts["second"], parts["shortcut"]
        y = first(x)
        if type(second) is not ConvNorm or is_hooked(second):
            y = add(second(y), shortcut(x))
            return y.replace(y.features.relu_())
        return second.added_to(shortcut(x), y)


@dataclass(frozen=True)
class Layers:
    """Makes the layers of a network, of one engine and one kind of norm."""

    engine: str | Engine | None = None
    norm: NormFactory = nn.BatchNorm1d

    def conv(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        activation: bool = True,
    ) -> ConvNorm:
        """A convolution without bias, its norm, and ReLU unless ``activation`` is off."""
        how = in_channels, out_channels, kernel_size, stride
        layer = Conv3d(*how, bias=False, engine=self.engine)
        return ConvNorm(layer, self.norm(out_channels), activation)

    def transposed(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 2,
        activation: bool = True,
    ) -> ConvNorm:
        """The same with a transposed convolution."""
        how = in_channels, out_channels, kernel_size, stride
        layer = ConvTranspose3d(*how, bias=False, engine=self.engine)
        return ConvNorm(layer, self.norm(out_channels), activation)

    def blocks(
        self,
        in_channels: int,
        out_channels: int,
        count: int,
        kernel_size: Size = 3,
        stride: int = 1,
    ) -> nn.Sequential:
        """Residual blocks, the first of which changes channels and resolution."""
        first = ResidualBlock(in_channels, out_channels, self, kernel_size, stride)
        same = out_channels, out_channels, self, kernel_size
        return nn.Sequential(first, *(ResidualBlock(*same) for _ in range(count - 1)))

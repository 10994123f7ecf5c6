"""Published networks in plain torch, from their descriptions, with the names of their own files.

A network draws a parameter when it first asks for it, under the name and in the shape that the
package gives it. So after one call its state is complete, and written independently of ours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.interop import definitions as defined


class Plain:
    """State, sites of the levels and the layers that all networks share.

    Args:
        sites: ``[N, 4]`` (batch, x, y, z); coarser levels are the floor of their halves.
    """

    norm_suffix = ""

    def __init__(self, sites: Tensor) -> None:
        self.state: dict[str, Tensor] = {}
        self.levels = [sites]
        self._draw = torch.Generator().manual_seed(5)

    def parameter(self, name: str, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
        if name not in self.state:
            self.state[name] = torch.randn(shape, generator=self._draw) * scale + shift
        return self.state[name]

    def level(self, number: int) -> Tensor:
        while len(self.levels) <= number:
            finer = self.levels[-1].clone()
            finer[:, 1:] = finer[:, 1:].div(2, rounding_mode="floor")
            self.levels.append(finer.unique(dim=0))
        return self.levels[number]

    def norm(self, name: str, x: Tensor) -> Tensor:
        name, channels = name + self.norm_suffix, x.shape[1]
        weight = self.parameter(f"{name}.weight", channels, scale=0.1, shift=1.0)
        bias = self.parameter(f"{name}.bias", channels, scale=0.1)
        mean = self.parameter(f"{name}.running_mean", channels, scale=0.1)
        var = self.parameter(f"{name}.running_var", channels, scale=0.05, shift=0.8).abs_()
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    def linear(self, name: str, x: Tensor, out: int) -> Tensor:
        weight = self.parameter(f"{name}.weight", out, x.shape[1], scale=x.shape[1] ** -0.5)
        return x @ weight.T + self.parameter(f"{name}.bias", out, scale=0.1)


class SpvNas(Plain):
    """MinkUNet of SPVNAS (TorchSparse), ``cr`` an eighth."""

    channels = (4, 4, 8, 16, 32, 32, 16, 12, 12)

    def conv(
        self, name: str, x: Tensor, out: int, size: int, levels: tuple[int, int], up: bool = False
    ) -> Tensor:
        shape = (size**3, x.shape[1], out) if size > 1 else (x.shape[1], out)
        kernel = self.parameter(f"{name}.kernel", *shape, scale=(3 * x.shape[1]) ** -0.5)
        if size == 1:
            return x @ kernel
        (source, target), places = levels, defined.torchsparse_offsets((size,) * 3)
        stride = (1,) * 3 if source == target else (2,) * 3
        sites = self.level(source), self.level(target)
        return defined.by_offset(*sites, x, kernel, places, stride, up)

    def residual(self, name: str, x: Tensor, out: int, level: int) -> Tensor:
        same = level, level
        y = self.norm(f"{name}.net.1", self.conv(f"{name}.net.0", x, out, 3, same)).relu()
        y = self.norm(f"{name}.net.4", self.conv(f"{name}.net.3", y, out, 3, same))
        if x.shape[1] != out:
            beside = self.conv(f"{name}.downsample.0", x, out, 1, same)
            x = self.norm(f"{name}.downsample.1", beside)
        return (x + y).relu()

    def stem(self, x: Tensor) -> Tensor:
        for first in (0, 3):
            x = self.conv(f"stem.{first}", x, self.channels[0], 3, (0, 0))
            x = self.norm(f"stem.{first + 1}", x).relu()
        return x

    def stage(self, number: int, x: Tensor) -> Tensor:
        name, out = f"stage{number}", self.channels[number]
        x = self.conv(f"{name}.0.net.0", x, x.shape[1], 2, (number - 1, number))
        x = self.norm(f"{name}.0.net.1", x).relu()
        return self.residual(f"{name}.2", self.residual(f"{name}.1", x, out, number), out, number)

    def up(self, number: int, x: Tensor, skip: Tensor) -> Tensor:
        name, out, level = f"up{number}", self.channels[4 + number], 4 - number
        x = self.conv(f"{name}.0.net.0", x, out, 2, (level + 1, level), True)
        x = self.norm(f"{name}.0.net.1", x).relu()
        x = self.residual(f"{name}.1.0", torch.cat([x, skip], 1), out, level)
        return self.residual(f"{name}.1.1", x, out, level)

    def __call__(self, x: Tensor, classes: int) -> Tensor:
        levels = [self.stem(x)]
        for number in range(1, 5):
            levels.append(self.stage(number, levels[-1]))
        y = levels.pop()
        for number in range(1, 5):
            y = self.up(number, y, levels.pop())
        return self.linear("classifier.0", y, classes)


class Fcgf(Plain):
    """ResUNetBN2C of FCGF (MinkowskiEngine), an eighth as wide."""

    norm_suffix = ".bn"

    def conv(self, name: str, x: Tensor, out: int, size: int, levels: tuple[int, int]) -> Tensor:
        shape = (size**3, x.shape[1], out) if size > 1 else (x.shape[1], out)
        kernel = self.parameter(f"{name}.kernel", *shape, scale=(3 * x.shape[1]) ** -0.5)
        (source, target), places = levels, defined.minkowski_offsets((size,) * 3)
        stride = (1,) * 3 if source == target else (2,) * 3
        sites = self.level(source), self.level(target)
        return defined.by_offset(*sites, x, kernel, places, stride, source > target)

    def part(self, number: str, x: Tensor, out: int, size: int, levels: tuple[int, int]) -> Tensor:
        x = self.norm(f"norm{number}", self.conv(f"conv{number}", x, out, size, levels))
        name, same = f"block{number}", (levels[1], levels[1])
        y = self.norm(f"{name}.norm1", self.conv(f"{name}.conv1", x, out, 3, same)).relu()
        y = self.norm(f"{name}.norm2", self.conv(f"{name}.conv2", y, out, 3, same))
        return (x + y).relu()

    def __call__(self, x: Tensor, outputs: int) -> Tensor:
        skips = []
        for number, (out, size) in enumerate([(4, 5), (8, 3), (16, 3), (32, 3)]):
            x = self.part(f"{number + 1}", x, out, size, (max(0, number - 1), number))
            skips.append(x)
        x = skips.pop()
        for number, out in ((4, 16), (3, 8), (2, 8)):
            x = self.part(f"{number}_tr", x, out, 3, (number - 1, number - 2))
            x = torch.cat([x, skips.pop()], 1)
        x = self.conv("conv1_tr", x, 8, 1, (0, 0)).relu()
        x = self.conv("final", x, outputs, 1, (0, 0))
        x = x + self.parameter("final.bias", 1, outputs, scale=0.1)
        return x / x.norm(dim=1, keepdim=True)

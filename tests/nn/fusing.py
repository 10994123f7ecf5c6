"""Blocks, inputs and a dataflow that writes down its calls, for the tests of fused layers."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import pcnn
from pcnn.dataflows import Reference
from pcnn.maps import SortedSearch
from pcnn.models.blocks import ConvNorm
from pcnn.nn import Conv3d, ConvTranspose3d, cat
from pcnn.ops import Engine
from tests.clouds import surface_grid


@dataclass(frozen=True)
class Recorded(Reference):
    """The reference, writing down what each product was asked to do on the way."""

    fuses: bool = True
    calls: list[dict[str, Any]] = field(default_factory=list, compare=False)

    def forward(self, *args: Any) -> torch.Tensor:
        self.calls.append(args[-1]._asdict())
        return super().forward(*args)


def recorded(fuses: bool = True) -> tuple[Engine, list[dict[str, Any]]]:
    dataflow = Recorded(fuses=fuses)
    return Engine("recorded", SortedSearch(), dataflow), dataflow.calls


def shaken(module: nn.Module) -> nn.Module:
    """Norms with statistics and weights of no special value, in evaluation mode."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.SyncBatchNorm):
            for own in (part.weight, part.bias, part.running_mean, part.running_var):
                if own is not None:
                    own.data.uniform_(0.5, 2)
    return module.eval()


def tensor(
    n: int = 200, channels: int = 4, dtype: torch.dtype = torch.float32
) -> pcnn.SparseTensor:
    grid = surface_grid(n)
    return pcnn.SparseTensor(torch.randn(grid.rows, channels).to(dtype), grid)


def joined(dtype: torch.dtype = torch.float32) -> pcnn.SparseTensor:
    first = tensor(200, 3, dtype)
    second = first.replace(torch.randn(first.geometry.rows, 1).to(dtype))
    with torch.no_grad():
        return cat(first, second)


def separate(module: nn.Module, x: pcnn.SparseTensor, *sites: Any) -> pcnn.SparseTensor:
    """The result of the module, one operation after another: gradients are enabled."""
    with torch.enable_grad():
        y: pcnn.SparseTensor = module(x.replace(x.features), *sites)
    return y.replace(y.features.detach())


def layer(kind: str, **arguments: Any) -> ConvNorm:
    conv: nn.Module
    if kind == "transposed":
        conv = ConvTranspose3d(4, 6, 2, 2, **arguments)
    else:
        size, stride = {"3": (3, 1), "strided": (2, 2), "1": (1, 1), "strided 1": (1, 2)}[kind]
        conv = Conv3d(4, 6, size, stride, **arguments)
    return shaken(ConvNorm(conv, nn.BatchNorm1d(6)))  # type: ignore[return-value]

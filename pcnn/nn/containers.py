"""Modules of `torch.nn` on the features of a sparse tensor, alone and between sparse layers."""

from __future__ import annotations

from torch import nn

from pcnn.nn.conv import Convolution
from pcnn.nn.features import normalize
from pcnn.nn.fused import FoldedNorm, fused_convolution, is_hooked, steps_of
from pcnn.tensor import SparseTensor, require_sparse


class FeatureWise(nn.Module):
    """Apply a module that maps ``[N, C]`` to ``[N, C']``: linear, norm, activation, dropout.

    The module inside stays a plain `torch.nn` module, so that conversion to `SyncBatchNorm`,
    weight decay rules and pruning find what they look for.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, C]`` to ``[N, C']`` on the same sites."""
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        return x.replace(normalize(self.module, x.features, x.geometry.count))


class Sequential(nn.Sequential):
    """`torch.nn.Sequential` of sparse layers; plain norms and activations are wrapped by itself.

    A module of `torch.nn` acts on features; every other module takes the sparse tensor. A
    convolution, the batch norm after it and the ReLU after that are one call.
    """

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*(FeatureWise(m) if _is_plain(m) else m for m in modules))
        self._folded: dict[int, FoldedNorm] = {}

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N_in, C_in]`` to what the last module makes of them."""
        bare = [_inside(module) for module in self]
        for step, norm, relu, folded in steps_of(list(self), bare, Convolution, self._folded):
            if norm is None:
                x = step(x)
            else:
                x = fused_convolution(step, x, norm=norm, relu=relu, folded=folded)
        return x

    def train(self, mode: bool = True) -> Sequential:
        """Switch between training and evaluation; folded norms are computed again after it."""
        self._folded.clear()
        return super().train(mode)


def _is_plain(module: nn.Module) -> bool:
    containers = nn.Sequential | nn.ModuleList | nn.ModuleDict
    in_torch = type(module).__module__.startswith("torch.nn.modules.")
    return in_torch and not isinstance(module, containers)


def _inside(module: nn.Module) -> nn.Module:
    """What a wrapper that nothing watches holds."""
    wraps = type(module) is FeatureWise and not is_hooked(module)
    return module.module if wraps else module  # type: ignore[return-value]

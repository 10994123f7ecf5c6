"""`torch.nn.Sequential` of sparse layers and plain modules."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from pcnn.nn.conv import Convolution
from pcnn.nn.features import FeatureWise
from pcnn.nn.folded_norm import FOLDABLE, FoldedNorm
from pcnn.nn.fused import fused_convolution, is_hooked
from pcnn.tensor import SparseTensor


class Sequential(nn.Sequential):
    """`torch.nn.Sequential` of sparse layers; plain norms and activations are wrapped by itself.

    A module of `torch.nn` acts on features; every other module takes the sparse tensor. A
    convolution, the batch norm after it and the ReLU after that are one call (`fused_convolution`).
    """

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*(FeatureWise(m) if _is_plain(m) else m for m in modules))
        self._folded: dict[int, FoldedNorm] = {}

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N_in, C_in]`` to what the last module makes of them."""
        steps = list(self)
        position = 0
        while position < len(steps):
            step, norm = steps[position], _plain_at(steps, position + 1, FOLDABLE)
            if norm is None or not isinstance(step, Convolution):
                x = step(x)
                position += 1
                continue
            relu = _plain_at(steps, position + 2, (nn.ReLU,))
            folded = self._folded.setdefault(position, FoldedNorm())
            x = fused_convolution(step, x, None, norm, None, relu is not None, folded)
            position += 2 if relu is None else 3
        return x

    def train(self, mode: bool = True) -> Sequential:
        """Switch between training and evaluation; folded norms are computed again after it."""
        self._folded.clear()
        return super().train(mode)


def _is_plain(module: nn.Module) -> bool:
    containers = nn.Sequential | nn.ModuleList | nn.ModuleDict
    in_torch = type(module).__module__.startswith("torch.nn.modules.")
    return in_torch and not isinstance(module, containers)


def _plain_at(
    steps: Sequence[nn.Module], position: int, classes: tuple[type[nn.Module], ...]
) -> nn.Module | None:
    """The plain module wrapped at a position, if it is of these classes and nothing watches it."""
    if position >= len(steps) or type(steps[position]) is not FeatureWise:
        return None
    module = steps[position].module
    assert isinstance(module, nn.Module)
    if type(module) not in classes or is_hooked(steps[position]) or is_hooked(module):
        return None
    return module

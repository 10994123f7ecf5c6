"""Containers of modules, and the end of a network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pcnn.compat.spconv.pytorch.conv import SparseConvolution
from pcnn.compat.spconv.pytorch.core import SparseConvTensor, SparseModule
from pcnn.compat.spconv.pytorch.sites import require
from pcnn.nn.fused import FoldedNorm, steps_of


class SparseSequential(SparseModule, nn.Sequential):
    """Modules one after another: sparse ones on the tensor, others on its features."""

    def __init__(self, *args: Any, **kwargs: nn.Module) -> None:
        super().__init__(*args)
        for name, module in kwargs.items():
            self.add(module, name)
        self._folded: dict[int, FoldedNorm] = {}

    def add(self, module: nn.Module, name: str | None = None) -> None:
        """Append a module."""
        own = str(len(self)) if name is None else name
        require(own not in self._modules, f"there is a module of the name {own!r}")
        self.add_module(own, module)

    def forward(self, input: Any) -> Any:
        """The output of the last module; no features pass modules on features.

        A convolution, the batch norm behind it and a ReLU are one call where they can be.
        """
        modules: list[Any] = list(self)
        if torch.compiler.is_compiling():
            for module in modules:
                input = _passed(module, input)
            return input
        for step, norm, relu, folded in steps_of(modules, modules, SparseConvolution, self._folded):
            if norm is None:
                input = _passed(step, input)
            else:
                input = step.normalized(input, norm, relu, folded)
        return input

    def train(self, mode: bool = True) -> SparseSequential:
        """Switch between training and evaluation; folded norms are computed again after it."""
        self._folded.clear()
        return super().train(mode)


def _passed(module: nn.Module, input: Any) -> Any:
    if is_spconv_module(module) or not isinstance(input, SparseConvTensor):
        return module(input)
    return input.replace_feature(module(input.features)) if len(input.features) else input


class ToDense(SparseModule):
    """The volume ``[B, C, *spatial_shape]`` of a tensor."""

    def forward(self, x: SparseConvTensor) -> Any:
        """See `SparseConvTensor.dense`."""
        return x.dense()


def is_spconv_module(module: object) -> bool:
    """True for modules that take sparse tensors."""
    return isinstance(module, SparseModule)


def is_sparse_conv(module: object) -> bool:
    """True for convolutions on sparse tensors."""
    return isinstance(module, SparseConvolution)

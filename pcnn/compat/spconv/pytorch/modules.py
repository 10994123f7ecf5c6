"""Containers of modules, and those that join, add or end branches of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from pcnn.compat.spconv.pytorch.conv import SparseConvolution
from pcnn.compat.spconv.pytorch.core import SparseConvTensor, SparseModule
from pcnn.compat.spconv.pytorch.ops import require
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


class _OnFeatures:
    """A module of torch that takes sparse tensors too."""

    def forward(self, input: Any) -> Any:
        """Features ``[N, C]``, of a tensor or by themselves."""
        forward = super().forward  # type: ignore[misc]
        if isinstance(input, SparseConvTensor):
            return input.replace_feature(forward(input.features))
        return forward(input)


class SparseBatchNorm(_OnFeatures, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` of features."""


class SparseReLU(_OnFeatures, nn.ReLU):
    """`torch.nn.ReLU` of features."""


class JoinTable(SparseModule):
    """Channels of tensors on the same rows side by side."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        """``[N, C_1 + C_2 + ...]``."""
        _check_rows(input)
        return input[0].replace_feature(torch.cat([each.features for each in input], 1))


class AddTable(SparseModule):
    """Sum of tensors on the same rows."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        """``[N, C]``."""
        _check_rows(input)
        return input[0].replace_feature(torch.stack([each.features for each in input]).sum(0))


class ConcatTable(SparseModule):
    """Each module on the same input."""

    def forward(self, input: Any) -> list[Any]:
        """A list of what they give."""
        return [module(input) for module in self.children()]

    def add(self, module: nn.Module) -> ConcatTable:
        """Append a module."""
        self.add_module(str(len(self._modules)), module)
        return self


def _check_rows(tensors: Sequence[SparseConvTensor]) -> None:
    """Refuse tensors that are not on the same rows, as far as their shapes tell."""
    facts = [(len(each.features), each.spatial_shape, each.batch_size) for each in tensors]
    for position, own in enumerate(facts):
        require(
            own == facts[0],
            f"tensor {position} has (rows, spatial_shape, batch_size) {own}, tensor 0 {facts[0]}; "
            "sparse_add adds over different sites",
        )


class ToDense(SparseModule):
    """The volume ``[B, C, *spatial_shape]`` of a tensor."""

    def forward(self, x: SparseConvTensor) -> Any:
        """See `SparseConvTensor.dense`."""
        return x.dense()


def is_spconv_module(module: object) -> bool:
    """True for modules that take sparse tensors."""
    return isinstance(module, SparseModule | SparseBatchNorm | SparseReLU)


def is_sparse_conv(module: object) -> bool:
    """True for convolutions on sparse tensors."""
    return isinstance(module, SparseConvolution)

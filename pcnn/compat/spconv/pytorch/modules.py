"""Modules on sparse tensors, and the container that tells them from those on features."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from torch import nn

from pcnn.compat.spconv.pytorch.convolution import SparseConvolution
from pcnn.compat.spconv.pytorch.core import SparseConvTensor
from pcnn.compat.spconv.pytorch.folding import FoldedStep, folded_steps, folds_now
from pcnn.compat.spconv.pytorch.sparse_module import SparseModule, require
from pcnn.nn.folded_norm import FoldedNorm

__all__ = [
    "RemoveGrid",
    "SparseBatchNorm",
    "SparseIdentity",
    "SparseModule",
    "SparseReLU",
    "SparseSequential",
    "SparseSyncBatchNorm",
    "ToDense",
    "assign_name_for_sparse_modules",
    "is_sparse_conv",
    "is_spconv_module",
]


class SparseSequential(SparseModule):
    """Modules one after another: sparse ones on the tensor, others on its features."""

    def __init__(self, *args: Any, **kwargs: nn.Module) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            named = dict(args[0])
        else:
            named = {str(position): module for position, module in enumerate(args)}
        for name, module in [*named.items(), *kwargs.items()]:
            require(name not in self._modules, f"there are two modules of the name {name!r}")
            self.add_module(name, module)
        self._folded: dict[int, FoldedNorm] = {}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, idx: int) -> Any:
        if not -len(self) <= idx < len(self):
            raise IndexError(f"there are {len(self)} modules, none of number {idx}")
        return list(self._modules.values())[idx]

    def add(self, module: nn.Module, name: str | None = None) -> None:
        """Append a module."""
        own = str(len(self)) if name is None else name
        if name is None and own in self._modules:
            raise KeyError(f"there is a module of the name {own!r}; give another name")
        self.add_module(own, module)

    def forward(self, input: Any) -> Any:
        """The output of the last module; no features pass modules on features.

        Without gradients a convolution, the batch norm behind it in evaluation mode and a ReLU are
        one product (`folded_steps`).
        """
        steps = folded_steps(list(self), self._folded) if folds_now() else list(self)
        for module in steps:
            on_tensor = isinstance(module, FoldedStep) or is_spconv_module(module)
            if on_tensor or not isinstance(input, SparseConvTensor):
                input = module(input)
            elif len(input.features):
                input = input.replace_feature(module(input.features))
        return input

    def train(self, mode: bool = True) -> SparseSequential:
        """Switch between training and evaluation; folded norms are computed again after it."""
        self._folded.clear()
        return super().train(mode)


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


class SparseSyncBatchNorm(_OnFeatures, nn.SyncBatchNorm):
    """`torch.nn.SyncBatchNorm` of features."""


class SparseReLU(_OnFeatures, nn.ReLU):
    """`torch.nn.ReLU` of features."""


class SparseIdentity(_OnFeatures, nn.Identity):
    """`torch.nn.Identity` of features."""


class ToDense(SparseModule):
    """The volume ``[B, C, *spatial_shape]`` of a tensor."""

    def forward(self, x: SparseConvTensor) -> Any:
        """See `SparseConvTensor.dense`."""
        return x.dense()


class RemoveGrid(SparseModule):
    """Drop the tensor kept as ``grid``."""

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """The same tensor."""
        x.grid = None
        return x


def is_spconv_module(module: object) -> bool:
    """True for modules that take sparse tensors."""
    return isinstance(module, SparseModule | SparseBatchNorm | SparseReLU)


def is_sparse_conv(module: object) -> bool:
    """True for convolutions on sparse tensors."""
    return isinstance(module, SparseConvolution)


def assign_name_for_sparse_modules(module: nn.Module) -> None:
    """Tell sparse modules their names in a network."""
    for name, part in module.named_modules():
        if isinstance(part, SparseModule):
            part._sparse_unique_name = name

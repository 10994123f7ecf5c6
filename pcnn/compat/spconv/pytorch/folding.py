"""A convolution, its batch norm and ReLU as one product, where nothing could tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from pcnn.compat.spconv.pytorch.convolution import SparseConvolution
from pcnn.compat.spconv.pytorch.core import SparseConvTensor
from pcnn.dataflows import Epilogue
from pcnn.nn.folded_norm import FoldedNorm
from pcnn.nn.fused import is_hooked


class FoldedStep(NamedTuple):
    """A convolution with what follows its sums."""

    layer: SparseConvolution
    epilogue: Epilogue

    def __call__(self, input: SparseConvTensor) -> SparseConvTensor:
        """The layer, the norm and ReLU of a tensor."""
        return self.layer.finished(input, self.epilogue)


def folds_now() -> bool:
    """True without gradients, outside of compiled code."""
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling())


def folded_steps(modules: Sequence[Any], kept: dict[int, FoldedNorm]) -> list[Any]:
    """Modules in their order, some of them together.

    A layer of a class of its own, a pointwise or a hooked one, and a norm that trains, is hooked or
    of another class, stay as they are.
    """
    steps, position = [], 0
    while position < len(modules):
        layer, *behind = modules[position : position + 3]
        step = None
        if behind and _is_free(layer):
            step = _folded(layer, behind[0], behind[1:], kept.setdefault(position, FoldedNorm()))
        steps.append(step or layer)
        relu = step is not None and step.epilogue.relu
        position += 1 if step is None else 2 + relu
    return steps


def _is_free(layer: Any) -> bool:
    """True for a layer of the classes here that nothing watches."""
    if not isinstance(layer, SparseConvolution) or layer.conv1x1 or is_hooked(layer):
        return False
    return type(layer).forward is SparseConvolution.forward


def _folded(
    layer: SparseConvolution, norm: Any, behind: Sequence[Any], kept: FoldedNorm
) -> FoldedStep | None:
    """The layer with its norm, and ReLU where that is next; ``None``: the norm stays apart."""
    if not isinstance(norm, nn.Module) or is_hooked(norm):
        return None
    folded = kept.fold(norm, layer.bias, layer.out_channels)
    if folded is None:
        return None
    relu = bool(behind) and type(behind[0]) is nn.ReLU and not is_hooked(behind[0])
    return FoldedStep(layer, folded.epilogue(None, relu))

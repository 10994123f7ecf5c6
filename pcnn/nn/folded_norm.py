"""Batch norm as a scale and a shift per channel, computed from the live module and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.dataflows import Epilogue
from pcnn.nn.snapshot import Snapshot

#: Norms that are a scale and a shift in evaluation; a subclass may compute something else.
FOLDABLE = (nn.BatchNorm1d, nn.SyncBatchNorm)


#: Weights of the first source, of the second, and bias.
Linear = tuple[Tensor, Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class Folded:
    """Bias b and norm after the product of a convolution, as ``y * scale + shift``."""

    scale: Tensor | None  # [C_out] float32 (float64 of a float64 norm), None without a norm
    shift: Tensor | None  # [C_out], None without norm and bias
    _epilogues: tuple[Epilogue, Epilogue] = field(init=False, repr=False)
    _linear: dict[tuple[torch.dtype, int], tuple[Snapshot, Linear]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        both = Epilogue(self.scale, self.shift), Epilogue(self.scale, self.shift, relu=True)
        object.__setattr__(self, "_epilogues", both)

    def epilogue(self, residual: Tensor | None, relu: bool) -> Epilogue:
        """The same as an `Epilogue`, with a residual ``[N_out, C_out]`` and ReLU."""
        if residual is None:
            return self._epilogues[relu]
        return Epilogue(self.scale, self.shift, residual, relu)

    def linear(self, weight: Tensor, dtype: torch.dtype, split: int) -> Linear:
        """The linear layer that a pointwise convolution and the norm make together."""
        kept = self._linear.get((dtype, split))
        if kept is not None and kept[0].holds((weight,)):
            return kept[1]
        matrix = weight[0]
        if self.scale is not None:
            matrix = matrix.to(self.scale.dtype) * self.scale
        matrix, shift = matrix.to(dtype), None if self.shift is None else self.shift.to(dtype)
        linear = matrix[:split], matrix[split:], shift
        if Snapshot.is_possible((weight,)):
            self._linear[dtype, split] = Snapshot((weight,)), linear
        return linear


class FoldedNorm:
    """Folds a norm, and the bias of the convolution before it, when they have changed.

    In evaluation batch norm (Ioffe & Szegedy 2015, Algorithm 2) is

        scale = weight / sqrt(running_var + eps)
        shift = bias - running_mean * scale      (+ b * scale, with b the convolution's bias)

    Belongs to the module that holds both, and is no part of its state: copies and pickles of it are
    empty. Loading, training, moving and in-place changes are seen at the next call (`Snapshot`).
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[Snapshot, float, Folded] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return FoldedNorm, ()

    def clear(self) -> None:
        """Forget what was computed."""
        self._kept = None

    def fold(self, norm: nn.Module | None, bias: Tensor | None, channels: int) -> Folded | None:
        """Scale and shift of a norm in evaluation mode."""
        sources: tuple[Tensor | None, ...] = (bias,)
        eps = 0.0
        if norm is not None:
            if norm.training or type(norm) not in FOLDABLE:
                return None
            # norm.weight and its like search three dictionaries, at ten times the cost
            parameters, buffers = norm._parameters, norm._buffers
            eps = norm.__dict__["eps"]
            try:
                sources = (
                    bias,
                    parameters["weight"],
                    parameters["bias"],
                    buffers["running_mean"],
                    buffers["running_var"],
                    # torch's kernels update the statistics without counting a change; this counts
                    buffers["num_batches_tracked"],
                )
            except KeyError:  # kept elsewhere, and computed there
                return None
        kept = self._kept  # read once: another thread may write it
        if kept is not None and kept[1] == eps and kept[0].holds(sources):
            return kept[2]
        if not Snapshot.is_possible(sources):
            return None
        snapshot = Snapshot(sources)
        # a tensor made in inference mode could not be used outside it
        with torch.inference_mode(False), torch.no_grad():
            folded = _fold_bias(bias) if norm is None else _fold_norm(sources, eps, channels)
        if folded is not None:
            self._kept = snapshot, eps, folded
        return folded


def _fold_bias(bias: Tensor | None) -> Folded:
    return Folded(None, None if bias is None else bias.detach().to(_sums(bias)))


def _fold_norm(sources: Sequence[Tensor | None], eps: float, channels: int) -> Folded | None:
    layer_bias, weight, bias, mean, variance, batches = sources
    if mean is None or variance is None or batches is None or mean.shape != (channels,):
        return None
    # in float64, which the other operands are promoted to: scale and shift are rounded once
    scale = (variance.double() + eps).rsqrt_()
    if weight is not None:
        scale.mul_(weight)
    shift = (mean if layer_bias is None else mean.double() - layer_bias) * scale
    shift = -shift if bias is None else bias - shift
    dtype = _sums(variance)
    return Folded(scale.to(dtype), shift.to(dtype))


def _sums(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32

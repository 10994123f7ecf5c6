"""The dispatcher operators of a dataflow, and their autograd: for compiled code, and any order.

``mvmr`` and ``vvor`` are closed under differentiation (with ``t`` the transposed map):

    d mvmr(x, W, m) / dx = mvmr(g, W, t, transposed)      d / dW = vvor(x, g, m)
    d vvor(x, y, m) / dx = mvmr(y, h, t, transposed)      d / dy = mvmr(x, h, m)

so first, second and higher derivatives are these two operators again, and whatever the order, a
``vvor`` is one over ``m``. Kernel maps enter as flat lists of layout tensors, because a dispatcher
operator takes no classes: ``layouts`` of the side that is read, ``layouts_t`` of the other side,
``layouts_vvor`` of ``m``. A symmetric map is its own transpose: ``layouts_t`` is empty, and the
other side is ``layouts`` read mirrored.

How many rows come out is said by a tensor that has as many (``rows``; ``rows_t`` as many as the
other side), not by a number: code that inductor generates knows the sizes of all tensors it is
given, but not every number that it found to be equal to another one (torch 2.11 does not).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow, Epilogue

Dtype = torch.dtype

_MAP = "Tensor[] layouts, Tensor[] layouts_t, Tensor[] layouts_vvor, bool symmetric, bool mirrored"
_MVMR = (
    f"(Tensor x, Tensor weight, {_MAP}, Tensor rows, Tensor rows_t, int groups, bool transposed, "
    "ScalarType compute_dtype, ScalarType out_dtype) -> Tensor"
)
_VVOR = (
    f"(Tensor x, Tensor grad, {_MAP}, int volume, int groups, "
    "ScalarType compute_dtype, ScalarType out_dtype) -> Tensor"
)
_FUSED = (
    "(Tensor x, Tensor weight, Tensor? second, Tensor[] layouts, bool mirrored, Tensor rows, "
    "int groups, ScalarType dtype, Tensor? scale, Tensor? shift, Tensor? residual, bool relu)"
    " -> Tensor"
)


class Products(NamedTuple):
    """The operators of one dataflow: two differentiable products, and ``mvmr`` with an epilogue."""

    mvmr: Callable[..., Tensor]
    vvor: Callable[..., Tensor]
    fused: Callable[..., Tensor]


def products(dataflow: Dataflow) -> Products:
    """Operators ``torch.ops.pcnn.{mvmr,vvor,fused}_<name>`` of a dataflow.

    Defined at the first call, but for compiled ones: a dataflow is nothing that the compilers of
    all releases of torch pass on to code they do not trace. Engines define theirs when made.

    Args:
        dataflow: its ``name`` must be unique per setting.

    Raises:
        ValueError: another dataflow has its name.
    """
    if torch.compiler.is_compiling():
        return _handles(dataflow.name)
    return _define(dataflow)


def _handles(dataflow_name: str) -> Products:
    names = (f"{product}_{dataflow_name}" for product in Products._fields)
    return Products(*[getattr(torch.ops.pcnn, name).default for name in names])


@functools.cache
def _define(dataflow: Dataflow) -> Products:
    library = torch.library.Library("pcnn", "FRAGMENT")
    _KEEP.append(library)
    names = [f"{product}_{dataflow.name}" for product in Products._fields]
    for name, signature in zip(names, (_MVMR, _VVOR, _FUSED), strict=True):
        try:
            library.define(name + signature)
        except RuntimeError as error:
            raise ValueError(
                f"another dataflow is named {dataflow.name!r} already; give {dataflow} a name of "
                "its own"
            ) from error
    handles = _handles(dataflow.name)

    def mvmr(
        x: Tensor,
        weight: Tensor,
        layouts: list[Tensor],
        layouts_t: list[Tensor],
        layouts_vvor: list[Tensor],
        symmetric: bool,
        mirrored: bool,
        rows: Tensor,
        rows_t: Tensor,
        groups: int,
        transposed: bool,
        compute_dtype: Dtype,
        out_dtype: Dtype,
    ) -> Tensor:
        return dataflow.mvmr(
            x,
            weight,
            layouts,
            rows.shape[0],
            groups,
            transposed,
            compute_dtype,
            out_dtype,
            mirrored=mirrored,
        )

    def vvor(
        x: Tensor,
        grad: Tensor,
        layouts: list[Tensor],
        layouts_t: list[Tensor],
        layouts_vvor: list[Tensor],
        symmetric: bool,
        mirrored: bool,
        volume: int,
        groups: int,
        compute_dtype: Dtype,
        out_dtype: Dtype,
    ) -> Tensor:
        return dataflow.vvor(
            x, grad, layouts_vvor, groups, compute_dtype, out_dtype, mirrored=mirrored
        )

    def fused(
        x: Tensor,
        weight: Tensor,
        second: Tensor | None,
        layouts: list[Tensor],
        mirrored: bool,
        rows: Tensor,
        groups: int,
        dtype: Dtype,
        scale: Tensor | None,
        shift: Tensor | None,
        residual: Tensor | None,
        relu: bool,
    ) -> Tensor:
        return dataflow.mvmr(
            x,
            weight,
            layouts,
            rows.shape[0],
            groups,
            False,
            dtype,
            dtype,
            mirrored=mirrored,
            second=second,
            epilogue=Epilogue(scale, shift, residual, relu),
        )

    kernels: tuple[Callable[..., Tensor], ...] = (mvmr, vvor, fused)
    fakes: tuple[Callable[..., Tensor], ...] = (_fake_mvmr, _fake_vvor, _fake_fused)
    for name, kernel, fake in zip(names, kernels, fakes, strict=True):
        library.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"pcnn::{name}", fake, lib=library)
    library.impl(names[0], functools.partial(_apply_mvmr, handles), "Autograd")
    library.impl(names[1], functools.partial(_apply_vvor, handles), "Autograd")
    return handles


#: Libraries unregister their operators when collected; an operator lives as long as the process.
_KEEP: list[torch.library.Library] = []


def _fake_mvmr(
    x: Tensor,
    weight: Tensor,
    layouts: Sequence[Tensor],
    layouts_t: Sequence[Tensor],
    layouts_vvor: Sequence[Tensor],
    symmetric: bool,
    mirrored: bool,
    rows: Tensor,
    rows_t: Tensor,
    groups: int,
    transposed: bool,
    compute_dtype: Dtype,
    out_dtype: Dtype,
) -> Tensor:
    channels = weight.shape[1] * groups if transposed else weight.shape[2]
    return x.new_empty((rows.shape[0], channels), dtype=out_dtype)


def _fake_vvor(
    x: Tensor,
    grad: Tensor,
    layouts: Sequence[Tensor],
    layouts_t: Sequence[Tensor],
    layouts_vvor: Sequence[Tensor],
    symmetric: bool,
    mirrored: bool,
    volume: int,
    groups: int,
    compute_dtype: Dtype,
    out_dtype: Dtype,
) -> Tensor:
    return x.new_empty((volume, x.shape[1] // groups, grad.shape[1]), dtype=out_dtype)


def _fake_fused(
    x: Tensor,
    weight: Tensor,
    second: Tensor | None,
    layouts: Sequence[Tensor],
    mirrored: bool,
    rows: Tensor,
    groups: int,
    dtype: Dtype,
    scale: Tensor | None,
    shift: Tensor | None,
    residual: Tensor | None,
    relu: bool,
) -> Tensor:
    return x.new_empty((rows.shape[0], weight.shape[2]), dtype=dtype)


class _Mvmr(torch.autograd.Function):
    """Autograd of ``mvmr``, made of the two operators."""

    @staticmethod
    def forward(ctx: Any, handles: Products, *args: Any) -> Tensor:
        _save(ctx, handles, args[7:9], *args[:7])
        ctx.groups, ctx.transposed, ctx.compute_dtype = args[9:12]
        with torch._C._AutoDispatchBelowAutograd():
            return handles.mvmr(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight, saved, (rows, rows_t) = _saved(ctx)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[1]:
            grad_x = ctx.handles.mvmr(
                grad,
                weight,
                *saved.other_side(),
                rows_t,
                rows,
                ctx.groups,
                not ctx.transposed,
                ctx.compute_dtype,
                x.dtype,
            )
        if ctx.needs_input_grad[2]:
            # with transposed weights the gradient plays the input's part, on the map read backwards
            sides = (grad, x, *saved.other_side()) if ctx.transposed else (x, grad, *saved)
            grad_weight = ctx.handles.vvor(
                *sides, weight.shape[0], ctx.groups, ctx.compute_dtype, weight.dtype
            )
        return None, grad_x, grad_weight, *(None,) * 11


class _Vvor(torch.autograd.Function):
    """Autograd of ``vvor``: what makes the second derivative exist."""

    @staticmethod
    def forward(ctx: Any, handles: Products, *args: Any) -> Tensor:
        _save(ctx, handles, (), *args[:7])
        ctx.groups, ctx.compute_dtype = args[8:10]
        with torch._C._AutoDispatchBelowAutograd():
            return handles.vvor(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (outer,) = grads
        x, grad, saved, _ = _saved(ctx)
        rows, rows_t = grad.detach(), x.detach()
        groups, dtype = ctx.groups, ctx.compute_dtype
        grad_x = grad_grad = None
        if ctx.needs_input_grad[1]:
            grad_x = ctx.handles.mvmr(
                grad, outer, *saved.other_side(), rows_t, rows, groups, True, dtype, x.dtype
            )
        if ctx.needs_input_grad[2]:
            grad_grad = ctx.handles.mvmr(
                x, outer, *saved, rows, rows_t, groups, False, dtype, grad.dtype
            )
        return None, grad_x, grad_grad, *(None,) * 9


class Side(NamedTuple):
    """The arguments of an operator that say over which side of which map it runs.

    Args:
        layouts: of the side that is read.
        layouts_t: of the other side; empty if nobody asks for it, and for a symmetric map.
        layouts_vvor: of the forward map, for gradients of weights.
        symmetric: the map is its own transpose.
        mirrored: slot k multiplies ``W[K - 1 - k]``.
    """

    layouts: list[Tensor]
    layouts_t: list[Tensor]
    layouts_vvor: list[Tensor]
    symmetric: bool
    mirrored: bool

    def other_side(self) -> Side:
        """The transposed map.

        Raises:
            RuntimeError: its layouts were not built.
        """
        layouts, layouts_t, layouts_vvor, symmetric, mirrored = self
        if symmetric:
            return Side(layouts, layouts_t, layouts_vvor, True, not mirrored)
        if not layouts_t:
            raise RuntimeError(
                "backward through a convolution whose transposed layouts were not built: gradients "
                "were disabled when the forward pass ran"
            )
        return Side(layouts_t, layouts, layouts_vvor, False, mirrored)


def _save(
    ctx: Any,
    handles: Products,
    sizes: tuple[Tensor, ...],
    first: Tensor,
    second: Tensor,
    layouts: list[Tensor],
    layouts_t: list[Tensor],
    layouts_vvor: list[Tensor],
    symmetric: bool,
    mirrored: bool,
) -> None:
    ctx.handles, ctx.symmetric, ctx.mirrored = handles, symmetric, mirrored
    counts = len(sizes), len(layouts), len(layouts_t)
    ctx.ends = tuple(itertools.accumulate(counts))
    ctx.save_for_backward(first, second, *sizes, *layouts, *layouts_t, *layouts_vvor)


def _saved(ctx: Any) -> tuple[Tensor, Tensor, Side, list[Tensor]]:
    first, second, *tensors = ctx.saved_tensors
    a, b, c = ctx.ends
    lists = tensors[a:b], tensors[b:c], tensors[c:]
    return first, second, Side(*lists, ctx.symmetric, ctx.mirrored), tensors[:a]


_apply_mvmr: Callable[..., Tensor] = _Mvmr.apply
_apply_vvor: Callable[..., Tensor] = _Vvor.apply

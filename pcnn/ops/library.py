"""The dispatcher operators of a dataflow, and the one autograd of all convolutions.

``mvmr`` and ``vvor`` are closed under differentiation (with ``t`` the transposed map):

    d mvmr(x, W, m) / dx = mvmr(g, W, t, transposed)      d / dW = vvor(x, g, m)
    d vvor(x, y, m) / dx = mvmr(y, h, t, transposed)      d / dy = mvmr(x, h, m)

so first, second and higher derivatives are these two operators again. Kernel maps enter as flat
lists of layout tensors, because a dispatcher operator takes no classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow

Dtype = torch.dtype

_MVMR = (
    "(Tensor x, Tensor weight, Tensor[] layouts, Tensor[] layouts_t, SymInt n_out, int groups, "
    "bool transposed, ScalarType compute_dtype, ScalarType out_dtype) -> Tensor"
)
_VVOR = (
    "(Tensor x, Tensor grad, Tensor[] layouts, Tensor[] layouts_t, int volume, int groups, "
    "ScalarType compute_dtype, ScalarType out_dtype) -> Tensor"
)


class Products(NamedTuple):
    """The two differentiable operators of one dataflow."""

    mvmr: Callable[..., Tensor]
    vvor: Callable[..., Tensor]


@functools.cache
def products(dataflow: Dataflow) -> Products:
    """Operators ``torch.ops.pcnn.{mvmr,vvor}_<name>`` of a dataflow, defined at first use.

    Args:
        dataflow: its ``name`` must be unique per setting.
    """
    library = torch.library.Library("pcnn", "FRAGMENT")
    _KEEP.append(library)
    names = f"mvmr_{dataflow.name}", f"vvor_{dataflow.name}"
    library.define(names[0] + _MVMR)
    library.define(names[1] + _VVOR)
    handles = Products(*(getattr(torch.ops.pcnn, name).default for name in names))

    def mvmr(
        x: Tensor,
        weight: Tensor,
        layouts: list[Tensor],
        layouts_t: list[Tensor],
        n_out: int,
        groups: int,
        transposed: bool,
        compute_dtype: Dtype,
        out_dtype: Dtype,
    ) -> Tensor:
        return dataflow.mvmr(
            x, weight, layouts, n_out, groups, transposed, compute_dtype, out_dtype
        )

    def vvor(
        x: Tensor,
        grad: Tensor,
        layouts: list[Tensor],
        layouts_t: list[Tensor],
        volume: int,
        groups: int,
        compute_dtype: Dtype,
        out_dtype: Dtype,
    ) -> Tensor:
        return dataflow.vvor(x, grad, layouts, groups, compute_dtype, out_dtype)

    library.impl(names[0], mvmr, "CompositeExplicitAutograd")
    library.impl(names[1], vvor, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pcnn::{names[0]}", _fake_mvmr, lib=library)
    torch.library.register_fake(f"pcnn::{names[1]}", _fake_vvor, lib=library)
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
    n_out: int,
    groups: int,
    transposed: bool,
    compute_dtype: Dtype,
    out_dtype: Dtype,
) -> Tensor:
    channels = weight.shape[1] * groups if transposed else weight.shape[2]
    return x.new_empty((n_out, channels), dtype=out_dtype)


def _fake_vvor(
    x: Tensor,
    grad: Tensor,
    layouts: Sequence[Tensor],
    layouts_t: Sequence[Tensor],
    volume: int,
    groups: int,
    compute_dtype: Dtype,
    out_dtype: Dtype,
) -> Tensor:
    return x.new_empty((volume, x.shape[1] // groups, grad.shape[1]), dtype=out_dtype)


class _Mvmr(torch.autograd.Function):
    """Autograd of ``mvmr``; the only one a convolution has."""

    @staticmethod
    def forward(ctx: Any, handles: Products, *args: Any) -> Tensor:
        x, weight, layouts, layouts_t, _, groups, transposed, compute_dtype, _ = args
        ctx.handles, ctx.split = handles, len(layouts)
        ctx.groups, ctx.transposed, ctx.compute_dtype = groups, transposed, compute_dtype
        ctx.save_for_backward(x, weight, *layouts, *layouts_t)
        with torch._C._AutoDispatchBelowAutograd():
            return handles.mvmr(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight, layouts, layouts_t = _saved(ctx)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[1]:
            grad_x = ctx.handles.mvmr(
                grad,
                weight,
                layouts_t,
                layouts,
                x.shape[0],
                ctx.groups,
                not ctx.transposed,
                ctx.compute_dtype,
                x.dtype,
            )
        if ctx.needs_input_grad[2]:
            # with transposed weights the gradient plays the input's part, on the map read backwards
            sides = (
                (grad, x, layouts_t, layouts) if ctx.transposed else (x, grad, layouts, layouts_t)
            )
            grad_weight = ctx.handles.vvor(
                *sides, weight.shape[0], ctx.groups, ctx.compute_dtype, weight.dtype
            )
        return None, grad_x, grad_weight, *(None,) * 7


class _Vvor(torch.autograd.Function):
    """Autograd of ``vvor``: what makes the second derivative exist."""

    @staticmethod
    def forward(ctx: Any, handles: Products, *args: Any) -> Tensor:
        x, grad, layouts, layouts_t, _, groups, compute_dtype, _ = args
        ctx.handles, ctx.split = handles, len(layouts)
        ctx.groups, ctx.compute_dtype = groups, compute_dtype
        ctx.save_for_backward(x, grad, *layouts, *layouts_t)
        with torch._C._AutoDispatchBelowAutograd():
            return handles.vvor(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (outer,) = grads
        x, grad, layouts, layouts_t = _saved(ctx)
        settings = ctx.groups, ctx.compute_dtype
        grad_x = grad_grad = None
        if ctx.needs_input_grad[1]:
            grad_x = ctx.handles.mvmr(
                grad,
                outer,
                layouts_t,
                layouts,
                x.shape[0],
                settings[0],
                True,
                settings[1],
                x.dtype,
            )
        if ctx.needs_input_grad[2]:
            grad_grad = ctx.handles.mvmr(
                x,
                outer,
                layouts,
                layouts_t,
                grad.shape[0],
                settings[0],
                False,
                settings[1],
                grad.dtype,
            )
        return None, grad_x, grad_grad, *(None,) * 6


def _saved(ctx: Any) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    first, second, *layouts = ctx.saved_tensors
    forward, backward = layouts[: ctx.split], layouts[ctx.split :]
    if not backward:
        raise RuntimeError(
            "backward through a convolution whose transposed layouts were not built: gradients "
            "were disabled when the forward pass ran"
        )
    return first, second, forward, backward


_apply_mvmr: Callable[..., Tensor] = _Mvmr.apply
_apply_vvor: Callable[..., Tensor] = _Vvor.apply

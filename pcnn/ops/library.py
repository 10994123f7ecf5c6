"""The dispatcher operators of a dataflow, and their autograd: for compiled code, and any order.

``mvmr`` (`Dataflow.forward`) and ``vvor`` (`Dataflow.weight_grad`) are closed under differentiation
(with ``t`` the transposed map):

    d mvmr(x, W, m) / dx = mvmr(g, W, t, transposed)      d / dW = vvor(x, g, m)
    d vvor(x, y, m) / dx = mvmr(y, h, t, transposed)      d / dy = mvmr(x, h, m)

so first, second and higher derivatives are these two operators again, and whatever the order, a
``vvor`` is one over ``m``. Operators take no classes: a kernel map enters as the flat lists of
`MapOperands`, a `ConvSpec` as its fields.

Numbers of rows enter as tensors that have as many (``rows`` of the output, ``rows_t`` of the
input). Code that inductor generates knows the sizes of all tensors it is given. It does not know
every number that it found to be equal to another one (torch 2.11).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Dataflow, Epilogue, PerProduct
from pcnn.dataflows.products import Product
from pcnn.dataflows.tuned import has_decisions
from pcnn.dataflows.tuned import tuned as quickest

_MAP = "Tensor[] layouts, Tensor[] layouts_t, Tensor[] layouts_vvor, bool symmetric, bool mirrored"
_SCHEMAS = {
    "mvmr": f"(Tensor x, Tensor weight, {_MAP}, Tensor rows, Tensor rows_t, int groups, "
    "bool transposed, ScalarType compute_dtype, ScalarType out_dtype) -> Tensor",
    "vvor": f"(Tensor x, Tensor grad, {_MAP}, int volume, int groups, "
    "ScalarType compute_dtype, ScalarType out_dtype) -> Tensor",
    "fused": "(Tensor x, Tensor weight, Tensor? skip, Tensor[] layouts, bool mirrored, "
    "Tensor rows, int groups, ScalarType dtype, Tensor? scale, Tensor? shift, Tensor? residual, "
    "bool relu) -> Tensor",
}
#: Arguments of ``mvmr`` and ``vvor`` before what differs: two operands and `MapOperands`.
_COMMON = 7


class Operators(NamedTuple):
    """The operators of one dataflow: two differentiable products, and a fused forward product."""

    mvmr: Callable[..., Tensor]
    vvor: Callable[..., Tensor]
    fused: Callable[..., Tensor]


class MapOperands(NamedTuple):
    """The arguments of an operator that stand for one side of a kernel map.

    Args:
        layouts: of the side that is read.
        layouts_t: of the other side; empty if no gradient needs it, and for a symmetric map.
        layouts_vvor: of the forward map, for gradients of weights.
        symmetric: the map is its own transpose.
        mirrored: slot k multiplies ``W[K - 1 - k]``.
    """

    layouts: list[Tensor]
    layouts_t: list[Tensor]
    layouts_vvor: list[Tensor]
    symmetric: bool
    mirrored: bool

    def transposed(self) -> MapOperands:
        """The other side.

        Raises:
            RuntimeError: its layouts were not built.
        """
        layouts, layouts_t, layouts_vvor, symmetric, mirrored = self
        if symmetric:
            return MapOperands(layouts, layouts_t, layouts_vvor, True, not mirrored)
        if not layouts_t:
            raise RuntimeError(
                "backward through a convolution whose transposed layouts were not built: gradients "
                "were disabled when the forward pass ran"
            )
        return MapOperands(layouts_t, layouts, layouts_vvor, False, mirrored)


def operators(dataflow: Dataflow | PerProduct, tuned: bool = False) -> Operators:
    """Operators ``torch.ops.pcnn.{mvmr,vvor,fused}_<name>`` of a dataflow.

    Defined at the first eager call. Engines define theirs when they are made, as the compilers of
    some releases of torch pass no dataflow on to code that they do not trace.

    Args:
        dataflow: its ``name`` must be unique per setting.
        tuned: whether they look for a quicker dataflow in the tables of decisions when they run.

    Raises:
        ValueError: another dataflow has its name.
    """
    name = f"tuned_{dataflow.name}" if tuned else dataflow.name
    return _handles(name) if torch.compiler.is_compiling() else _define(name, dataflow, tuned)


def _handles(name: str) -> Operators:
    return Operators(*[getattr(torch.ops.pcnn, f"{kind}_{name}").default for kind in _SCHEMAS])


@functools.cache
def _define(name: str, dataflow: Dataflow | PerProduct, tuned: bool) -> Operators:
    library = torch.library.Library("pcnn", "FRAGMENT")
    _KEEP.append(library)
    for kind, schema in _SCHEMAS.items():
        try:
            library.define(f"{kind}_{name}{schema}")
        except RuntimeError as error:
            raise ValueError(
                f"another dataflow is named {dataflow.name!r} already; give {dataflow} a name of "
                "its own"
            ) from error
    handles = _handles(name)

    def leaf(kind: str, x: Tensor, sizes: tuple[int, int, int, int], spec: ConvSpec) -> Dataflow:
        """The dataflow of a product with C_in, C_out, K and rows."""
        if isinstance(dataflow, PerProduct):
            return dataflow.of(kind)
        if not tuned or not has_decisions(x.device):
            return dataflow
        c_in, c_out, volume, rows = sizes
        product = Product(kind, spec.compute_dtype, c_in, c_out, spec.groups)
        return quickest(dataflow, x.device, product, volume, rows)

    def multiply(
        x: Tensor, weight: Tensor, layouts: list[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        volume, depth, c_out = weight.shape
        kind = "transposed" if spec.transposed else "forward"
        flow = leaf(kind, x, (depth * spec.groups, c_out, volume, n_out), spec)
        return flow.forward(x, weight, layouts, n_out, spec)

    def mvmr(x: Tensor, weight: Tensor, *args: Any) -> Tensor:
        (layouts, *_, mirrored), (rows, _, groups, transposed, *dtypes) = args[:5], args[5:]
        spec = ConvSpec(groups, transposed, mirrored, *dtypes)
        return multiply(x, weight, layouts, rows.shape[0], spec)

    def vvor(x: Tensor, grad: Tensor, *args: Any) -> Tensor:
        (_, _, layouts, _, mirrored), (volume, groups, *dtypes) = args[:5], args[5:]
        spec = ConvSpec(groups, False, mirrored, *dtypes)
        flow = leaf("vvor", x, (x.shape[1], grad.shape[1], volume, grad.shape[0]), spec)
        return flow.weight_grad(x, grad, layouts, spec)

    def fused(
        x: Tensor,
        weight: Tensor,
        skip: Tensor | None,
        layouts: list[Tensor],
        mirrored: bool,
        rows: Tensor,
        groups: int,
        dtype: torch.dtype,
        *epilogue: Any,
    ) -> Tensor:
        spec = ConvSpec(groups, False, mirrored, dtype, dtype, Epilogue(*epilogue), skip)
        return multiply(x, weight, layouts, rows.shape[0], spec)

    kernels: tuple[Callable[..., Tensor], ...] = (mvmr, vvor, fused)
    fakes: tuple[Callable[..., Tensor], ...] = (_fake_mvmr, _fake_vvor, _fake_fused)
    for kind, kernel, fake in zip(_SCHEMAS, kernels, fakes, strict=True):
        library.impl(f"{kind}_{name}", kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"pcnn::{kind}_{name}", fake, lib=library)
    library.impl(f"mvmr_{name}", functools.partial(_apply_mvmr, handles), "Autograd")
    library.impl(f"vvor_{name}", functools.partial(_apply_vvor, handles), "Autograd")
    return handles


#: Libraries unregister their operators when collected; an operator lives as long as the process.
_KEEP: list[torch.library.Library] = []


def _fake_mvmr(x: Tensor, weight: Tensor, *args: Any) -> Tensor:
    rows, _, groups, transposed, _, out_dtype = args[5:]
    channels = weight.shape[1] * groups if transposed else weight.shape[2]
    return x.new_empty((rows.shape[0], channels), dtype=out_dtype)


def _fake_vvor(x: Tensor, grad: Tensor, *args: Any) -> Tensor:
    volume, groups, _, out_dtype = args[5:]
    return x.new_empty((volume, x.shape[1] // groups, grad.shape[1]), dtype=out_dtype)


def _fake_fused(x: Tensor, weight: Tensor, *args: Any) -> Tensor:
    rows, _, dtype = args[3:6]
    return x.new_empty((rows.shape[0], weight.shape[2]), dtype=dtype)


class _Mvmr(torch.autograd.Function):
    """Autograd of ``mvmr``, made of the two operators."""

    @staticmethod
    def forward(ctx: Any, handles: Operators, *args: Any) -> Tensor:
        rows, (ctx.groups, ctx.transposed, ctx.compute_dtype, _) = args[7:9], args[9:]
        _save(ctx, handles, rows, *args[:_COMMON])
        with torch._C._AutoDispatchBelowAutograd():
            return handles.mvmr(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight, saved, (rows, rows_t) = _saved(ctx)
        groups, transposed, dtype = ctx.groups, ctx.transposed, ctx.compute_dtype
        grad_x = grad_weight = None
        if ctx.needs_input_grad[1]:
            other = saved.transposed()
            settings = groups, not transposed, dtype, x.dtype
            grad_x = ctx.handles.mvmr(grad, weight, *other, rows_t, rows, *settings)
        if ctx.needs_input_grad[2]:
            # with transposed weights the gradient plays the input's part, on the map read backwards
            sides = (grad, x, *saved.transposed()) if transposed else (x, grad, *saved)
            sizes = weight.shape[0], groups, dtype, weight.dtype
            grad_weight = ctx.handles.vvor(*sides, *sizes)
        return None, grad_x, grad_weight, *(None,) * 11


class _Vvor(torch.autograd.Function):
    """Autograd of ``vvor``: what makes the second derivative exist."""

    @staticmethod
    def forward(ctx: Any, handles: Operators, *args: Any) -> Tensor:
        _save(ctx, handles, (), *args[:_COMMON])
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
            other = saved.transposed()
            settings = groups, True, dtype, x.dtype
            grad_x = ctx.handles.mvmr(grad, outer, *other, rows_t, rows, *settings)
        if ctx.needs_input_grad[2]:
            settings = groups, False, dtype, grad.dtype
            grad_grad = ctx.handles.mvmr(x, outer, *saved, rows, rows_t, *settings)
        return None, grad_x, grad_grad, *(None,) * 9


def _save(
    ctx: Any,
    handles: Operators,
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


def _saved(ctx: Any) -> tuple[Tensor, Tensor, MapOperands, list[Tensor]]:
    first, second, *tensors = ctx.saved_tensors
    a, b, c = ctx.ends
    lists = tensors[a:b], tensors[b:c], tensors[c:]
    return first, second, MapOperands(*lists, ctx.symmetric, ctx.mirrored), tensors[:a]


_apply_mvmr: Callable[..., Tensor] = _Mvmr.apply
_apply_vvor: Callable[..., Tensor] = _Vvor.apply

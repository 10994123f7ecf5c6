"""Convolution of features over a kernel map, and its autograd."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Dataflow, Epilogue, PerProduct
from pcnn.dataflows.torch_sums import accumulator, finish, join
from pcnn.geometry import KernelMap
from pcnn.ops.engine import Engine
from pcnn.ops.library import MapOperands, Operators, operators

#: Specs without tensors are few: each is made once, and found again in C.
_spec: Callable[..., ConvSpec] = functools.cache(ConvSpec)


def convolution(
    x: Tensor,
    weight: Tensor,
    kernel_map: KernelMap,
    engine: Engine | Dataflow,
    *,
    groups: int = 1,
    compute_dtype: torch.dtype | None = None,
    bias: Tensor | None = None,
    skip: Tensor | None = None,
    epilogue: Epilogue | None = None,
) -> Tensor:
    """Sum ``x[j] @ W[k]`` into ``out[i]`` over the triplets (i, j, k) of the kernel map.

    PointCNN++ Eq. 1. A transposed convolution is the same call on ``kernel_map.transpose()``.
    Differentiable to any order. The layouts that backward reads are built here, while gradients are
    enabled; backward builds nothing. First derivatives call the dataflow itself; compiled code and
    second derivatives call its operators (`pcnn.ops.library`), which cost the host more.

    Args:
        x: ``[N_in, C_in]`` floating point.
        weight: ``[K, C_in / groups, C_out]``; output channels group-major.
        kernel_map: the triplets.
        engine: chooses the dataflow of each product, or is the dataflow of all of them.
        groups: groups of channels; divides C_in and C_out.
        compute_dtype: dtype operands are rounded to (autocast); ``None`` means that of ``x``.
        bias: ``[C_out]``, added to every row; where no gradients follow, before the sums are
            rounded. Beside an epilogue or a skip connection it is the shift of the epilogue.
        skip: ``[N_in, C_2]``, input channels that follow those of ``x``, as if concatenated; for
            inference, at groups = 1.
        epilogue: applied to the sums before they are rounded to ``compute_dtype``; for inference.

    Returns:
        ``[N_out, C_out]`` in ``compute_dtype``.

    Raises:
        ValueError: shapes that do not fit each other, a skip connection or an epilogue where
            gradients follow or beside a bias.
    """
    edges, shape = kernel_map.edges, weight.shape
    _check(x, shape, kernel_map, groups, skip)
    dtype = x.dtype if compute_dtype is None else compute_dtype
    # a symmetric map is read from one side only, whichever is asked for
    mirrored = kernel_map.flipped and edges.symmetric
    side = kernel_map.transpose() if mirrored else kernel_map
    graded = torch.is_grad_enabled()
    x_grad, w_grad = graded and x.requires_grad, graded and weight.requires_grad
    follows = x_grad or w_grad or (graded and bias is not None and bias.requires_grad)
    if bias is not None and (skip is not None or epilogue is not None):
        raise ValueError("a bias beside a skip connection or an epilogue: give it as its shift")
    if bias is not None and not follows:
        epilogue = Epilogue(None, bias if bias.dtype.itemsize > 2 else bias.float())
    extra = skip is not None or epilogue is not None
    if extra and (graded or groups != 1):
        _check_inference(x, weight, skip, epilogue, groups)
    if torch.compiler.is_compiling():
        out = _compiled(
            x, weight, side, engine, ConvSpec(groups, False, mirrored, dtype, dtype, epilogue, skip)
        )
        return out + bias.to(out.dtype) if bias is not None and follows else out
    if isinstance(engine, Engine):
        sizes = dtype, shape[1] * groups, shape[2], groups
        forward, transposed, outer = engine.choose(side, x.device, sizes, x_grad or w_grad)
    else:
        forward = transposed = outer = engine
    # without gradients nothing but a leaf requires them: a dry run marks its input so
    layouts = side.read(forward.needs, outer.needs_weight_grad, not graded and x.requires_grad)
    n_out = edges.rows[int(not side.flipped)]
    if extra:
        spec = ConvSpec(groups, False, mirrored, dtype, dtype, epilogue, skip)
        if forward.fuses:
            return forward.forward(x, weight, layouts, n_out, spec)
        # rounded once, after the epilogue
        wide = _spec(groups, False, mirrored, dtype, accumulator(dtype))
        return finish(forward.forward(join(x, skip), weight, layouts, n_out, wide), spec)
    spec = _spec(groups, False, mirrored, dtype, dtype)
    if x_grad or w_grad:
        both = x_grad and not edges.symmetric
        layouts_t = side.transpose().layouts(transposed.needs) if both else []
        layouts_vvor = side.layouts(outer.needs_weight_grad) if w_grad else []
        operands = MapOperands(layouts, layouts_t, layouts_vvor, edges.symmetric, mirrored)
        out = _apply(x, weight, _Call(forward, transposed, outer, operands, n_out, spec))
    else:
        out = forward.forward(x, weight, layouts, n_out, spec)
    return out if bias is None else out + bias.to(out.dtype)


def _compiled(
    x: Tensor, weight: Tensor, side: KernelMap, engine: Engine | Dataflow, spec: ConvSpec
) -> Tensor:
    """The same by operators. Lists of layouts are not kept: that would be a side effect."""
    flow, handles = _operators_of(engine, side, x.device)
    groups, _, mirrored, dtype, _, epilogue, skip = spec
    layouts, graded = side.layouts(flow.needs), torch.is_grad_enabled()
    operands = MapOperands(layouts, [], [], side.symmetric, mirrored)
    if epilogue is None and skip is None:
        if graded and x.requires_grad and not side.symmetric:
            operands = operands._replace(layouts_t=side.transpose().layouts(flow.needs))
        if graded and weight.requires_grad:
            operands = operands._replace(layouts_vvor=side.layouts(flow.needs_weight_grad))
        return handles.mvmr(x, weight, *operands, *side.extents, groups, False, dtype, dtype)
    if flow.fuses:
        rows, parts = side.extents[0], Epilogue() if epilogue is None else epilogue
        return handles.fused(x, weight, skip, layouts, mirrored, rows, groups, dtype, *parts)
    x, wide = join(x, skip), accumulator(dtype)
    out = handles.mvmr(x, weight, *operands, *side.extents, groups, False, dtype, wide)
    return finish(out, spec)


def _operators_of(
    engine: Engine | Dataflow, side: KernelMap, device: torch.device
) -> tuple[Dataflow | PerProduct, Operators]:
    """The untuned dataflow of a map, and operators that look for a tuned one when they run."""
    if not isinstance(engine, Engine):
        return engine, operators(engine)
    flow = engine.untuned(side, device)
    return flow, operators(flow, tuned=engine.dataflow is None)


class _Call(NamedTuple):
    """A convolution without its operands: who computes each product, its map, rows and spec."""

    forward: Dataflow
    transposed: Dataflow
    outer: Dataflow
    operands: MapOperands
    n_out: int
    spec: ConvSpec


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, call: _Call) -> Tensor:
        dtype = call.spec.compute_dtype
        # rounded once for both directions; the gradient has the dtype of the weight itself
        rounded = weight if weight.dtype == dtype else weight.to(dtype)
        ctx.save_for_backward(x, weight)
        ctx.call, ctx.rounded = call, rounded if ctx.needs_input_grad[0] else None
        return call.forward.forward(x, rounded, call.operands.layouts, call.n_out, call.spec)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        call: _Call = ctx.call
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return *_differentiable(call, x, weight, grad, needs), None
        groups, _, mirrored, dtype, *_ = call.spec
        grad_x = grad_weight = None
        if needs[0]:
            layouts, _, _, _, turned = call.operands.transposed()
            spec = _spec(groups, True, turned, dtype, x.dtype)
            grad_x = call.transposed.forward(grad, ctx.rounded, layouts, x.shape[0], spec)
        if needs[1]:
            spec = _spec(groups, False, mirrored, dtype, weight.dtype)
            layouts = call.operands.layouts_vvor
            grad_weight = call.outer.weight_grad(x, grad, layouts, spec)
        return grad_x, grad_weight, None


def _differentiable(
    call: _Call, x: Tensor, weight: Tensor, grad: Tensor, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Both gradients as operators, which have derivatives of their own."""
    flows = call.forward, call.transposed, call.outer
    same = flows[0] == flows[1] == flows[2]
    handles = operators(flows[0] if same else PerProduct(*flows))
    groups, dtype = call.spec.groups, call.spec.compute_dtype
    grad_x = grad_weight = None
    if needs[0]:
        rows, settings = (x.detach(), grad.detach()), (groups, True, dtype, x.dtype)
        grad_x = handles.mvmr(grad, weight, *call.operands.transposed(), *rows, *settings)
    if needs[1]:
        sizes = weight.shape[0], groups, dtype, weight.dtype
        grad_weight = handles.vvor(x, grad, *call.operands, *sizes)
    return grad_x, grad_weight


_apply: Callable[[Tensor, Tensor, _Call], Tensor] = _Convolution.apply


def _check(
    x: Tensor, weights: torch.Size, kernel_map: KernelMap, groups: int, skip: Tensor | None
) -> None:
    # shapes and rows are read once: this runs in every layer
    shape, n_in = x.shape, kernel_map.edges.rows[int(kernel_map.flipped)]
    if len(shape) != 2 or shape[0] != n_in:
        raise ValueError(f"features must be [{n_in}, C_in] for this map, got {tuple(shape)}")
    channels = shape[1]
    if skip is not None:
        if skip.ndim != 2 or skip.shape[0] != shape[0]:
            raise ValueError(
                f"second features must be [{shape[0]}, C_2] to match the first, got "
                f"{tuple(skip.shape)}"
            )
        channels += skip.shape[1]
    if len(weights) != 3 or weights[0] != kernel_map.edges.volume:
        raise ValueError(
            f"weight must be [{kernel_map.volume}, C_in / groups, C_out] for this map, got "
            f"{tuple(weights)}"
        )
    if groups < 1 or weights[1] * groups != channels or weights[2] % groups:
        raise ValueError(
            f"{channels} input channels in {groups} groups do not fit a weight of shape "
            f"{tuple(weights)}"
        )


def _check_inference(
    x: Tensor, weight: Tensor, skip: Tensor | None, epilogue: Epilogue | None, groups: int
) -> None:
    """Refuse a skip connection or an epilogue where their gradients would be lost."""
    if skip is not None and groups != 1:
        raise ValueError(f"a second source of features needs groups=1, got {groups}")
    if torch.is_grad_enabled():
        others = () if epilogue is None else (epilogue.scale, epilogue.shift, epilogue.residual)
        if any(t is not None and t.requires_grad for t in (x, weight, skip, *others)):
            raise ValueError(
                "a second source or an epilogue is for inference, but gradients are enabled: call "
                "under torch.no_grad(), or concatenate, add and activate in operations of their own"
            )

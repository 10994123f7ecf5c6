"""Both products of a convolution over a kernel map, ready to run: what its autograd calls."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Dataflow
from pcnn.geometry import KernelMap
from pcnn.ops.engine import Engine
from pcnn.ops.map_products import MapOperands, MapProducts, mvmr, spec_of, vvor


class ConvolutionProducts(NamedTuple):
    """A convolution without its operands, as `pcnn.ops.products.Products`."""

    flow: Dataflow  # computes the output and both gradients
    operands: MapOperands  # layouts of the map
    n_out: int  # rows of the output
    spec: ConvSpec  # of the output

    @property
    def compute_dtype(self) -> torch.dtype:
        """See `Products.compute_dtype`."""
        return self.spec.compute_dtype

    def output(self, x: Tensor, rounded: Tensor) -> Tensor:
        """See `Products.output`."""
        return self.flow.forward(x, rounded, self.operands.layouts, self.n_out, self.spec)

    def gradients(
        self,
        x: Tensor,
        weight: Tensor,
        rounded: Tensor | None,
        grad: Tensor,
        needs: tuple[bool, ...],
    ) -> tuple[Tensor | None, Tensor | None]:
        """See `Products.gradients`; layouts were built when the output was computed."""
        if torch.is_grad_enabled():
            return self._differentiable(x, weight, grad, needs)
        groups, _, mirrored, dtype, *_ = self.spec
        grad_x = grad_weight = None
        if needs[0]:
            assert rounded is not None
            layouts, _, _, _, turned = self.operands.transposed()
            spec = spec_of(groups, True, turned, dtype, x.dtype)
            grad_x = self.flow.forward(grad, rounded, layouts, x.shape[0], spec)
        if needs[1]:
            spec = spec_of(groups, False, mirrored, dtype, weight.dtype)
            grad_weight = self.flow.weight_grad(x, grad, self.operands.layouts_vvor, spec)
        return grad_x, grad_weight

    def _differentiable(
        self, x: Tensor, weight: Tensor, grad: Tensor, needs: tuple[bool, ...]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Both gradients as functions that have derivatives of their own."""
        side, spec = self.operands, self.spec
        products = MapProducts(self.flow, spec.groups, spec.compute_dtype)
        grad_x = grad_weight = None
        if needs[0]:
            turned = side.transposed()
            grad_x = mvmr(grad, weight, products, turned, x.shape[0], True, x.dtype)
        if needs[1]:
            grad_weight = vvor(x, grad, products, side, weight.dtype)
        return grad_x, grad_weight


def convolution_products(
    x: Tensor,
    weight: Tensor,
    kernel_map: KernelMap,
    engine: Engine | Dataflow,
    groups: int,
    dtype: torch.dtype,
) -> ConvolutionProducts:
    """The products of a convolution and its gradients; arguments as of `convolution`.

    The layouts that backward reads are built here, for what requires gradients now.
    """
    edges, shape = kernel_map.edges, weight.shape
    check_operands(x, shape, kernel_map, groups, None)
    # a symmetric map is read from one side only, whichever is asked for
    mirrored = kernel_map.flipped and edges.symmetric
    side = kernel_map.transpose() if mirrored else kernel_map
    graded = torch.is_grad_enabled()
    x_grad, w_grad = graded and x.requires_grad, graded and weight.requires_grad
    flow = engine.choose(side, x.device) if isinstance(engine, Engine) else engine
    layouts = side.read(flow.needs, flow.needs_weight_grad, not graded and x.requires_grad)
    both = x_grad and not edges.symmetric
    layouts_t = side.transpose().layouts(flow.needs) if both else []
    layouts_vvor = side.layouts(flow.needs_weight_grad) if w_grad else []
    operands = MapOperands(layouts, layouts_t, layouts_vvor, edges.symmetric, mirrored)
    n_out = edges.rows[int(not side.flipped)]
    spec = spec_of(groups, False, mirrored, dtype, dtype)
    return ConvolutionProducts(flow, operands, n_out, spec)


def check_operands(
    x: Tensor, weights: torch.Size, kernel_map: KernelMap, groups: int, skip: Tensor | None
) -> None:
    """Refuse features and weights that do not fit the map, or each other."""
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

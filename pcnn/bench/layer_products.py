"""Calls of a network's convolutions, and their products on random operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from pcnn.dataflows import ConvSpec, Dataflow, Epilogue, Reference
from pcnn.geometry import KernelMap
from pcnn.kernels.tf32 import tf32_allowed
from pcnn.ops.convolution import convolution
from pcnn.runtime.layer_calls import ObservedCall, run_observed
from pcnn.tensor import SparseTensor

#: Bound on the relative RMS error, by what the operands are rounded to. Half and bfloat16 results
#: are rounded once, at 2^-11 and 2^-8 relative, TF32 operands at 2^-11; float32 sums K x C
#: products; float64 differs from the reference by summation order.
RELATIVE_RMS = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "tf32": 1e-3,
    "float32": 2e-6,
    "float64": 1e-12,
}
#: Error of a float32 sum of n random terms, relative to it, over the root of n.
SUM_ERROR = 1e-8
#: No single element is off by more than this many times the bound times the RMS of the truth.
WORST_OVER_RMS = 50.0


@dataclass(frozen=True)
class LayerCall:
    """Sizes of one call of a layer: all but the values."""

    kernel_map: KernelMap  # the map, from the side on which the layer reads it
    c_in: int  # input channels
    c_out: int  # output channels
    groups: int  # groups of channels
    dtype: torch.dtype  # that operands are rounded to

    @property
    def device(self) -> torch.device:
        """Where it is computed."""
        return self.kernel_map.in_index.device

    @property
    def precision(self) -> str:
        """Name of the operands' dtype: float32 may be TF32, whose products round more."""
        name = str(self.dtype).removeprefix("torch.")
        return "tf32" if name == "float32" and tf32_allowed() else name

    def rows(self, product: str) -> int:
        """Rows of a product's output side; of a vvor, of its gradients."""
        return self.kernel_map.n_in if product == "transposed" else self.kernel_map.n_out

    def pairs_per_row(self, product: str) -> float:
        """Mean number of triplets of such a row."""
        return self.kernel_map.triplets / max(1, self.rows(product))


class LayerProduct:
    """One product of a call, on random operands of its shapes."""

    def __init__(self, call: LayerCall, name: str, inference: bool = False) -> None:
        self.call, self.name = call, name
        # gradients of weights are float32 at least, as under autocast
        wide = torch.promote_types(call.dtype, torch.float32)
        self.out_dtype = wide if name == "vvor" else call.dtype
        side = call.kernel_map.transpose() if name == "transposed" else call.kernel_map
        # a symmetric map is its own transpose, its slots mirrored
        self.mirrored = side.symmetric and side.flipped
        self.view = side.transpose() if self.mirrored else side
        random = torch.Generator(call.device).manual_seed(0)

        def operand(*shape: int) -> Tensor:
            values = torch.randn(shape, generator=random, device=call.device)
            return values.to(call.dtype)

        rows, map_ = (self.view.n_in, self.view.n_out), call.kernel_map
        self.x = operand(rows[0], call.c_out if name == "transposed" else call.c_in)
        if name == "vvor":
            self.other = operand(rows[1], call.c_out)
        else:
            scale = (map_.volume * self.x.shape[1] / call.groups) ** -0.5
            shape = map_.volume, call.c_in // call.groups, call.c_out
            self.other = (scale * operand(*shape)).to(call.dtype)
        self.epilogue: Epilogue | None = None
        if inference and name == "forward":
            norm = torch.rand(2, call.c_out, generator=random, device=call.device)
            self.epilogue = Epilogue(scale=norm[0] + 0.5, shift=norm[1], relu=True)

    def prepared(self, dataflow: Dataflow) -> Callable[[], Tensor]:
        """The product by a dataflow, its layouts built;
        what is left is what a layer's call does.
        """
        needs = dataflow.needs_weight_grad if self.name == "vvor" else dataflow.needs
        layouts = [tensor for name in needs for tensor in self.view.layout(name)]
        if self.epilogue is not None:
            return lambda: self._finished(dataflow)
        dtype = self.call.dtype
        return lambda: self._compute(dataflow, layouts, self.x, self.other, dtype)

    @torch.no_grad()
    def _finished(self, dataflow: Dataflow) -> Tensor:
        map_, groups = self.call.kernel_map, self.call.groups
        return convolution(
            self.x, self.other, map_, dataflow, groups=groups, epilogue=self.epilogue
        )

    @property
    def terms(self) -> int:
        """Products in the longest of its sums, at most."""
        if self.name == "vvor":
            return max(self.view.n_in, self.view.n_out)
        return self.view.volume * self.x.shape[1] // self.call.groups

    @cached_property
    def truth(self) -> Tensor:
        """The same of the same operands in float64."""
        layouts = list(self.view.layout("pairs"))
        operands = self.x.double(), self.other.double()
        product = self._compute(Reference(), layouts, *operands, torch.float64)
        return product if self.epilogue is None else self.epilogue.apply(product)

    def _compute(
        self,
        dataflow: Dataflow,
        layouts: list[Tensor],
        x: Tensor,
        other: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        out_dtype = torch.promote_types(dtype, self.out_dtype)
        transposed = self.name == "transposed"
        spec = ConvSpec(self.call.groups, transposed, self.mirrored, dtype, out_dtype)
        if self.name == "vvor":
            return dataflow.weight_grad(x, other, layouts, spec)
        return dataflow.forward(x, other, layouts, self.view.n_out, spec)


def disagreement(result: Tensor, truth: Tensor, dtype: str, terms: int = 0) -> str | None:
    """How a result disagrees with its float64 truth, ``None`` if its dtype explains the error."""
    if result.shape != truth.shape:
        return f"has the shape {tuple(result.shape)} instead of {tuple(truth.shape)}"
    result = result.detach().double()
    if not bool(torch.isfinite(result).all()):
        return "is not finite"
    if not truth.numel():
        return None
    bound = RELATIVE_RMS[dtype]
    if dtype != "float64":
        bound += SUM_ERROR * terms**0.5
    scale = truth.square().mean().sqrt().item()
    error = result - truth
    rms, worst = error.square().mean().sqrt().item(), error.abs().max().item()
    if rms > bound * scale or worst > WORST_OVER_RMS * bound * scale:
        return (
            f"is off by {rms:.2e} (RMS) and {worst:.2e} (worst) at a scale of {scale:.2e}; the "
            f"bounds for {dtype} are {bound * scale:.2e} and {WORST_OVER_RMS * bound * scale:.2e}"
        )
    return None


def recorded(model: nn.Module, tensors: Iterable[SparseTensor]) -> dict[str, list[LayerCall]]:
    """Calls of all convolution layers that read a kernel map, by the layers' names."""
    calls: dict[str, list[LayerCall]] = {}

    def observe(call: ObservedCall) -> None:
        kernel_map, layer = call.kernel_map, call.layer
        if kernel_map is not None and kernel_map.triplets:
            channels = layer.in_channels, layer.out_channels, layer.groups
            one = LayerCall(kernel_map, *channels, call.out.features.dtype)
            calls.setdefault(call.name, []).append(one)

    for x in tensors:
        run_observed(model, x, observe)
    return calls

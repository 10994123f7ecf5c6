"""The products of one call of a convolution layer, with operands to try dataflows on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pcnn.dataflows import Dataflow, Epilogue, Reference
from pcnn.dataflows.tuned import signature_of
from pcnn.dataflows.tuning_table import Signature
from pcnn.geometry import KernelMap
from pcnn.ops.convolution import convolution


@dataclass(frozen=True)
class LayerCall:
    """What one call of a layer computes, whatever the values.

    Args:
        kernel_map: the map, from the side on which the layer reads it.
        c_in: input channels.
        c_out: output channels.
        groups: groups of channels.
        dtype: that operands are rounded to.
    """

    kernel_map: KernelMap
    c_in: int
    c_out: int
    groups: int
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where it is computed."""
        return self.kernel_map.in_index.device

    def signature(self, product: str) -> Signature:
        """Key of one of its products in a table."""
        channels = self.c_in, self.c_out, self.groups
        volume = self.kernel_map.volume
        return signature_of(self.device, self.dtype, *channels, volume, product)

    def rows(self, product: str) -> int:
        """Rows of a product's output side; of a vvor, of its gradients."""
        return self.kernel_map.n_in if product == "transposed" else self.kernel_map.n_out

    def pairs_per_row(self, product: str) -> float:
        """Mean number of triplets of such a row."""
        return self.kernel_map.triplets / max(1, self.rows(product))


class Product:
    """One product of a call, on random operands of its shapes.

    Args:
        call: the call.
        name: ``forward``, ``transposed`` or ``vvor``.
        inference: whether a folded norm and ReLU follow the forward product, as they do in
            networks while no gradients are kept: what fuses them saves passes over the output.
    """

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
        """The product by a dataflow, its layouts built; what is left is what a layer's call does.

        Raises:
            ValueError: a layout that this map cannot have.
        """
        needs = dataflow.needs_vvor if self.name == "vvor" else dataflow.needs
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
        groups, mirrored = self.call.groups, self.mirrored
        out_dtype = torch.promote_types(dtype, self.out_dtype)
        if self.name == "vvor":
            return dataflow.vvor(x, other, layouts, groups, dtype, out_dtype, mirrored=mirrored)
        return dataflow.mvmr(
            x,
            other,
            layouts,
            self.view.n_out,
            groups,
            self.name == "transposed",
            dtype,
            out_dtype,
            mirrored=mirrored,
        )

"""The three products of a layer, and a dataflow for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from pcnn.dataflows.base import Dataflow

#: Output, gradient of the features, gradient of the weights; so they are named in tuning files.
PRODUCTS = ("forward", "transposed", "vvor")


class Product(NamedTuple):
    """A product of a layer, apart from its map."""

    name: str  # one of PRODUCTS
    dtype: torch.dtype  # that operands are rounded to
    c_in: int  # input channels of the layer, whatever the product
    c_out: int  # output channels of the layer
    groups: int = 1  # groups of channels


@dataclass(frozen=True)
class PerProduct:
    """A dataflow for each product: the quickest for outputs need not be so for gradients."""

    forward: Dataflow  # computes outputs
    transposed: Dataflow  # computes gradients of features; it reads the layouts that forward reads
    vvor: Dataflow  # computes gradients of weights

    def __post_init__(self) -> None:
        if self.forward.needs != self.transposed.needs:
            raise ValueError(
                f"{self.forward.name} needs the layouts {self.forward.needs}, "
                f"{self.transposed.name} {self.transposed.needs}: they cannot serve one layer"
            )

    @property
    def name(self) -> str:
        """Names of the three."""
        return f"{self.forward.name}_t_{self.transposed.name}_o_{self.vvor.name}"

    @property
    def parts(self) -> tuple[Dataflow, Dataflow, Dataflow]:
        """The three, in the order of `PRODUCTS`."""
        return self.forward, self.transposed, self.vvor

    @property
    def deterministic(self) -> bool:
        """True if all three are."""
        return all(part.deterministic for part in self.parts)

    @property
    def needs(self) -> tuple[str, ...]:
        """Layouts that outputs and gradients of features read."""
        return self.forward.needs

    @property
    def needs_weight_grad(self) -> tuple[str, ...]:
        """Layouts that gradients of weights read."""
        return self.vvor.needs_weight_grad

    @property
    def fuses(self) -> bool:
        """True if outputs take an epilogue and a skip connection."""
        return self.forward.fuses

    def of(self, product: str) -> Dataflow:
        """The dataflow of a product, one of `PRODUCTS`."""
        found: Dataflow = getattr(self, product)
        return found

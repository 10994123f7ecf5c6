"""Propagation of the errors of single products through a network.

A network makes of small errors what its weights, norms and ReLUs make of them: a norm over a few
rows divides by a variance that may be tiny, a ReLU forgets a sign. No number bounds that for all
networks. So the network itself is asked: in float64, with a random error on every product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Reference


@dataclass(frozen=True)
class Rounded(Reference):
    """The reference, with an error of a given size on every result.

    An element of a result is off by ``error * rms(result)`` times a normal number, so its relative
    RMS error is ``error``. Errors are drawn from torch's own generator.

    Args:
        error: relative RMS error of a product.
    """

    error: float = 0.0
    name: str = field(init=False)
    deterministic: bool = False

    def __post_init__(self) -> None:
        size = f"{self.error:.3e}".replace(".", "_").replace("-", "m").replace("+", "p")
        object.__setattr__(self, "name", f"rounded_{size}")

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        """See `pcnn.dataflows.Dataflow.forward`."""
        return self._off(super().forward(x, w, layouts, n_out, spec))

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        """See `pcnn.dataflows.Dataflow.weight_grad`."""
        return self._off(super().weight_grad(x, g, layouts, spec))

    def _off(self, exact: Tensor) -> Tensor:
        if not exact.numel():
            return exact
        return exact + self.error * exact.square().mean().sqrt() * torch.randn_like(exact)

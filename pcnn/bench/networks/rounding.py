"""What errors of single products become on their way through a network.

A network makes of small errors what its weights, norms and ReLUs make of them: a norm over a few
rows divides by a variance that may be tiny, a ReLU forgets a sign. No number bounds that for all
networks. So the network itself is asked: in float64, with a random error on every product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pcnn.dataflows import Epilogue, Reference


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

    def mvmr(
        self,
        x: Tensor,
        weight: Tensor,
        layouts: Sequence[Tensor],
        n_out: int,
        groups: int,
        transposed: bool,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
        second: Tensor | None = None,
        epilogue: Epilogue | None = None,
    ) -> Tensor:
        """See `pcnn.dataflows.Dataflow.mvmr`."""
        out = super().mvmr(
            x,
            weight,
            layouts,
            n_out,
            groups,
            transposed,
            compute_dtype,
            out_dtype,
            mirrored=mirrored,
            second=second,
            epilogue=epilogue,
        )
        return self._off(out)

    def vvor(
        self,
        x: Tensor,
        grad: Tensor,
        layouts: Sequence[Tensor],
        groups: int,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
    ) -> Tensor:
        """See `pcnn.dataflows.Dataflow.vvor`."""
        dtypes = compute_dtype, out_dtype
        return self._off(super().vvor(x, grad, layouts, groups, *dtypes, mirrored=mirrored))

    def _off(self, exact: Tensor) -> Tensor:
        if not exact.numel():
            return exact
        return exact + self.error * exact.square().mean().sqrt() * torch.randn_like(exact)

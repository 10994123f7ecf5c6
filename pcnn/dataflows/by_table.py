"""The dataflow that was measured to be quickest for a product, where somebody measured it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.epilogue import Epilogue
from pcnn.dataflows.tuned import has_decisions, tuned


@dataclass(frozen=True)
class ByTable:
    """Asks the tables of measured decisions product by product; they know this and like devices.

    Only dataflows that read the same layouts as the usual one are taken: a map is laid out before
    anybody knows who reads it.

    Args:
        usual: computes what no table knows.
    """

    usual: Dataflow
    name: str = field(init=False)
    needs: tuple[str, ...] = field(init=False)
    needs_vvor: tuple[str, ...] = field(init=False)
    fuses: bool = field(init=False)
    deterministic: bool = field(init=False)

    def __post_init__(self) -> None:
        # kept, as every layer of every call reads them
        object.__setattr__(self, "name", f"by_table_{self.usual.name}")
        for name in ("needs", "needs_vvor", "fuses", "deterministic"):
            object.__setattr__(self, name, getattr(self.usual, name))

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
        """See `Dataflow.mvmr`."""
        chosen: Dataflow | None = None
        if has_decisions(x.device):
            volume, c_in, c_out = weight.shape
            product = "transposed" if transposed else "forward"
            shape = c_in * groups, c_out, volume, product, n_out, None, groups, self.needs
            chosen = tuned(x.device, compute_dtype, *shape)
        return (chosen or self.usual).mvmr(
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
        """See `Dataflow.vvor`."""
        chosen: Dataflow | None = None
        if has_decisions(x.device):
            counts, channels = layouts[-1], (x.shape[1], grad.shape[1])
            shape = *channels, counts.shape[0], "vvor", grad.shape[0], None, groups
            chosen = tuned(x.device, compute_dtype, *shape, self.needs_vvor)
        return (chosen or self.usual).vvor(
            x, grad, layouts, groups, compute_dtype, out_dtype, mirrored=mirrored
        )

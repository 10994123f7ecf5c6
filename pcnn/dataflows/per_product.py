"""A dataflow for every product of a layer: forward, with transposed weights, outer products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.epilogue import Epilogue


@dataclass(frozen=True)
class PerProduct:
    """What is quickest for the output need not be for the gradients: each product has its own.

    Args:
        forward: computes outputs.
        transposed: computes gradients of features; it reads the layouts that ``forward`` reads.
        outer: computes gradients of weights.

    Raises:
        ValueError: ``forward`` and ``transposed`` need different layouts.
    """

    forward: Dataflow
    transposed: Dataflow
    outer: Dataflow

    def __post_init__(self) -> None:
        if self.forward.needs != self.transposed.needs:
            raise ValueError(
                f"{self.forward.name} needs the layouts {self.forward.needs}, "
                f"{self.transposed.name} {self.transposed.needs}: they cannot serve one layer"
            )

    @property
    def name(self) -> str:
        """Names of the three."""
        return f"{self.forward.name}_t_{self.transposed.name}_o_{self.outer.name}"

    @property
    def needs(self) -> tuple[str, ...]:
        """See `Dataflow.needs`."""
        return self.forward.needs

    @property
    def needs_vvor(self) -> tuple[str, ...]:
        """See `Dataflow.needs_vvor`."""
        return self.outer.needs_vvor

    @property
    def fuses(self) -> bool:
        """See `Dataflow.fuses`."""
        return self.forward.fuses

    @property
    def deterministic(self) -> bool:
        """Whether all three are."""
        parts = (self.forward, self.transposed, self.outer)
        return all(part.deterministic for part in parts)

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
        chosen = self.transposed if transposed else self.forward
        return chosen.mvmr(
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
        return self.outer.vvor(
            x, grad, layouts, groups, compute_dtype, out_dtype, mirrored=mirrored
        )

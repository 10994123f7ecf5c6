"""What every dataflow is: two products over the triplets of a kernel map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pcnn.dataflows.epilogue import Epilogue


class Dataflow(Protocol):
    """Computes ``mvmr`` and ``vvor`` from the layouts it needs.

    Implementations are frozen dataclasses: equal settings are equal objects. Layout tensors arrive
    as one flat list, in the order of ``needs`` or ``needs_vvor`` (`KernelMap.layout`).
    """

    def __hash__(self) -> int:
        """Equal settings have equal hashes; a frozen dataclass has this by itself."""

    @property
    def name(self) -> str:
        """Identifier, a valid part of an operator name; unique per setting."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Layouts that ``mvmr`` reads."""

    @property
    def needs_vvor(self) -> tuple[str, ...]:
        """Layouts that ``vvor`` reads."""

    @property
    def fuses(self) -> bool:
        """Whether ``mvmr`` takes an epilogue and a second source."""

    @property
    def deterministic(self) -> bool:
        """Whether two runs give identical bits."""

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
        """Matrix-vector multiply and reduce: ``out[i] = sum over (i, j, k) of x[j] @ W[k]``.

        Args:
            x: ``[N_in, C_in]``; ``[N_in, C_out]`` when ``transposed``.
            weight: ``[K, C_in / groups, C_out]``, output channels group-major.
            layouts: tensors of the layouts in ``needs``, one after another.
            n_out: rows of the output.
            groups: groups of channels.
            transposed: multiply by the transpose of every ``W[k]``.
            compute_dtype: dtype the operands are rounded to; sums are at least float32.
            out_dtype: dtype of the result.
            mirrored: slot k of the layouts multiplies ``W[K - 1 - k]``: a symmetric map serves as
                its own transpose.
            second: ``[N_in, C_2]``, channels that follow those of ``x`` (a skip connection that
                nobody copied); only where ``fuses``, at groups = 1 and not ``transposed``.
            epilogue: applied to the sums before they are rounded; only where ``fuses``.

        Returns:
            ``[n_out, C_out]``; ``[n_out, C_in]`` when ``transposed``.
        """

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
        """Vector-vector outer product and reduce: ``out[k] = sum over (i, j) of x[j]^T grad[i]``.

        Args:
            x: ``[N_in, C_in]``.
            grad: ``[N_out, C_out]``.
            layouts: tensors of the layouts in ``needs_vvor``, one after another.
            groups: groups of channels.
            compute_dtype: dtype the operands are rounded to; sums are at least float32.
            out_dtype: dtype of the result.
            mirrored: slot k of the layouts fills ``out[K - 1 - k]``.

        Returns:
            ``[K, C_in / groups, C_out]``.
        """

"""Dataflows: the two products of a convolution over the triplets of a kernel map."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from pcnn.dataflows.blocked import Blocked
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.gemm import OutputStationary
from pcnn.dataflows.torch_sums import Reference
from pcnn.kernels.conv_spec import ConvSpec, Epilogue

__all__ = [
    "Blocked",
    "ConvSpec",
    "Dataflow",
    "Epilogue",
    "GatherScatter",
    "OutputStationary",
    "Reference",
]


class Dataflow(Protocol):
    """Computes both products of a convolution from the layouts it needs.

    Implementations are frozen dataclasses: equal settings are equal objects. Layout tensors arrive
    as one flat list, in the order of ``needs`` or ``needs_weight_grad``.
    """

    def __hash__(self) -> int:
        """Equal settings have equal hashes; a frozen dataclass has this by itself."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Layouts that ``forward`` reads."""

    @property
    def needs_weight_grad(self) -> tuple[str, ...]:
        """Layouts that ``weight_grad`` reads."""

    @property
    def fuses(self) -> bool:
        """True if ``forward`` takes an epilogue and a skip connection."""

    @property
    def deterministic(self) -> bool:
        """True if two runs give identical bits."""

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        """Outputs, and over the transposed map gradients of features: the paper's MVMR.

        Matrix-vector multiply and reduce: ``out[i] = sum over (i, j, k) of x[j] @ W[k]``.

        Args:
            x: ``[N_in, C_in]``; ``[N_in, C_out]`` where ``spec.transposed``.
            w: ``[K, C_in / groups, C_out]``, output channels group-major.
            layouts: tensors of the layouts in ``needs``, one after another.
            n_out: rows of the output.
            spec: everything else.

        Returns:
            ``[n_out, C_out]``; ``[n_out, C_in]`` where ``spec.transposed``.
        """

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        """Gradient of the weights: the paper's VVOR.

        Vector-vector outer product and reduce: ``out[k] = sum over (i, j) of x[j]^T g[i]``.

        Args:
            x: ``[N_in, C_in]``.
            g: ``[N_out, C_out]``, gradient of the output.
            layouts: tensors of the layouts in ``needs_weight_grad``, one after another.
            spec: groups, ``mirrored`` and dtypes.

        Returns:
            ``[K, C_in / groups, C_out]``.
        """

"""What follows the product of a convolution and can be done while its result is stored."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class Epilogue(NamedTuple):
    """``relu(product * scale + shift + residual)``; what is absent is left out. Inference only.

    Args:
        scale: ``[C_out]`` float32, of a folded norm.
        shift: ``[C_out]`` float32, of a folded norm or a bias.
        residual: ``[N_out, C_out]``, added before the activation.
        relu: whether ReLU follows.
    """

    scale: Tensor | None = None
    shift: Tensor | None = None
    residual: Tensor | None = None
    relu: bool = False

    def apply(self, product: Tensor) -> Tensor:
        """The same in separate operations, for dataflows that do not fuse it.

        Args:
            product: ``[N_out, C_out]`` float32 or float64.

        Returns:
            ``[N_out, C_out]`` of the product's dtype.
        """
        if self.scale is not None:
            product = product * self.scale
        if self.shift is not None:
            product = product + self.shift
        if self.residual is not None:
            product = product + self.residual.to(product.dtype)
        return nn.functional.relu(product) if self.relu else product

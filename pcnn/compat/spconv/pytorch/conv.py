"""Convolutions of one, two and three axes, with spconv's arguments in spconv's order."""

from __future__ import annotations

from typing import Any

from pcnn.compat.spconv.pytorch.convolution import SparseConvolution
from pcnn.compat.spconv.pytorch.sparse_module import of_axes

_SHAPE = ("in_channels", "out_channels", "kernel_size")
_WINDOW = (*_SHAPE, "stride", "padding", "dilation", "groups", "bias", "indice_key", "algo")
_FORWARD = (*_WINDOW, "fp32_accum", "record_voxel_count", "large_kernel_fast_algo", "name")
_SUBM = (*_WINDOW, "fp32_accum", "large_kernel_fast_algo", "name")
_INVERSE = (*_SHAPE, "indice_key", "bias", "algo", "fp32_accum", "large_kernel_fast_algo", "name")


def _made(name: str, axes: int) -> type[Any]:
    """The class of a name without its number of axes."""
    own = {
        "SparseConv": (_FORWARD, 3, {}),
        "SparseConvTranspose": (_FORWARD, 3, {"transposed": True}),
        "SubMConv": (_SUBM, 3, {"subm": True}),
        "SparseInverseConv": (_INVERSE, 4, {"inverse": True}),
    }
    order, required, fixed = own[name]
    return of_axes(__name__, f"{name}{axes}d", SparseConvolution, axes, order, required, **fixed)


SparseConv1d, SparseConv2d, SparseConv3d = (_made("SparseConv", axes) for axes in (1, 2, 3))
SubMConv1d, SubMConv2d, SubMConv3d = (_made("SubMConv", axes) for axes in (1, 2, 3))
SparseConvTranspose1d, SparseConvTranspose2d, SparseConvTranspose3d = (
    _made("SparseConvTranspose", axes) for axes in (1, 2, 3)
)
SparseInverseConv1d, SparseInverseConv2d, SparseInverseConv3d = (
    _made("SparseInverseConv", axes) for axes in (1, 2, 3)
)

__all__ = [
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvolution",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
]

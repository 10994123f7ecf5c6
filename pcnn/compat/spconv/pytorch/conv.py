"""Convolutions of one, two and three axes, with spconv's arguments in spconv's order."""

from __future__ import annotations

from typing import ClassVar

from pcnn.compat.spconv.core import ConvAlgo
from pcnn.compat.spconv.pytorch.axes import Size
from pcnn.compat.spconv.pytorch.convolution import SparseConvolution

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


class _OfAxes(SparseConvolution):
    """A layer whose class knows its number of axes."""

    axes: ClassVar[int]


class _SparseConv(_OfAxes):
    """Convolution to every site that it reaches; arguments as in `SparseConvolution`."""

    _transposed: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        record_voxel_count: bool = False,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            self.axes,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            transposed=self._transposed,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            record_voxel_count=record_voxel_count,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )


class _SparseConvTranspose(_SparseConv):
    """Transposed convolution to every site that it reaches, in torch's output volume."""

    _transposed: ClassVar[bool] = True


class _SubMConv(_OfAxes):
    """Submanifold convolution, centred; arguments as in `SparseConvolution`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            self.axes,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            subm=True,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )


class _SparseInverseConv(_OfAxes):
    """Transposed convolution back to the sites that the layer of the same key came from."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        indice_key: str | None,
        bias: bool = True,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            self.axes,
            in_channels,
            out_channels,
            kernel_size,
            bias=bias,
            inverse=True,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )


class SparseConv1d(_SparseConv):
    """`SparseConvolution` on one axis."""

    axes = 1


class SparseConv2d(_SparseConv):
    """`SparseConvolution` on two axes."""

    axes = 2


class SparseConv3d(_SparseConv):
    """`SparseConvolution` on three axes."""

    axes = 3


class SparseConvTranspose1d(_SparseConvTranspose):
    """Transposed convolution on one axis."""

    axes = 1


class SparseConvTranspose2d(_SparseConvTranspose):
    """Transposed convolution on two axes."""

    axes = 2


class SparseConvTranspose3d(_SparseConvTranspose):
    """Transposed convolution on three axes."""

    axes = 3


class SparseInverseConv1d(_SparseInverseConv):
    """Inverse convolution on one axis."""

    axes = 1


class SparseInverseConv2d(_SparseInverseConv):
    """Inverse convolution on two axes."""

    axes = 2


class SparseInverseConv3d(_SparseInverseConv):
    """Inverse convolution on three axes."""

    axes = 3


class SubMConv1d(_SubMConv):
    """Submanifold convolution on one axis."""

    axes = 1


class SubMConv2d(_SubMConv):
    """Submanifold convolution on two axes."""

    axes = 2


class SubMConv3d(_SubMConv):
    """Submanifold convolution on three axes."""

    axes = 3

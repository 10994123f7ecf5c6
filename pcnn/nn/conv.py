"""Convolution and pooling layers, look-alikes of those of `torch.nn` on sparse tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pcnn.geometry import Geometry, Kernel, KernelMap
from pcnn.ops.convolution import convolution
from pcnn.ops.engine import Engine, resolve
from pcnn.ops.products import pointwise
from pcnn.ops.reduce import reduce_max, reduce_mean
from pcnn.ops.sites import dilated_sites, output_sites
from pcnn.tensor import SparseTensor, require_sparse

Size = int | Sequence[int]


def compute_dtype(features: Tensor) -> torch.dtype:
    """Dtype that operands are rounded to: that of the features, or autocast's where it is on."""
    dtype = features.dtype
    device = "cuda" if features.is_cuda else features.device.type
    if dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return dtype
    return torch.get_autocast_dtype(device)


def linear(features: Tensor, matrix: Tensor, bias: Tensor | None, groups: int = 1) -> Tensor:
    """A convolution of one slot that maps every site to itself, in `compute_dtype`."""
    dtype = compute_dtype(features)
    narrow = dtype != matrix.dtype or dtype.itemsize == 2  # than weight gradients' sums
    if groups > 1 or (narrow and torch.is_grad_enabled()):
        out = pointwise(features, matrix, dtype, groups)
        return out if bias is None else out + bias.to(out.dtype)
    return nn.functional.linear(features, matrix.t(), bias)


class Convolution(nn.Module):
    """Weights, initialisation and the call that forward and transposed layers share."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | None = None,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        engine: str | Engine | None = None,
    ) -> None:
        super().__init__()
        if min(in_channels, out_channels) < 1:
            raise ValueError(f"channels must be positive, got {in_channels} -> {out_channels}")
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups={groups} must divide in_channels={in_channels} and "
                f"out_channels={out_channels}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel = Kernel.of(kernel_size, stride, dilation, padding)
        self.engine = resolve(engine)
        self.weight = nn.Parameter(
            torch.empty(self.kernel.volume, in_channels // groups, out_channels)
        )
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and bias uniformly from +-1 / sqrt(fan_in), as `torch.nn.Conv3d` does."""
        bound = 1 / math.sqrt(self.weight.shape[0] * self.weight.shape[1])
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Channels and kernel, as in the constructor."""
        kernel = self.kernel
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={kernel.size}, "
            f"stride={kernel.stride}, padding={kernel.padding}, dilation={kernel.dilation}, "
            f"groups={self.groups}, bias={self.bias is not None}, engine={self.engine.name}"
        )

    def route(self, geometry: Geometry, out: Geometry | None) -> tuple[KernelMap | None, Geometry]:
        """Kernel map and output sites of a call; no map where the layer is linear on every site."""
        raise NotImplementedError

    def forward(self, x: SparseTensor, out: Geometry | SparseTensor | None = None) -> SparseTensor:
        """Convolve."""
        if torch.compiler.is_compiling():  # sites and maps are found in the call
            y: SparseTensor = torch.compiler.disable(type(self).forward)(self, x, out)
            return y
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        if isinstance(out, SparseTensor):
            out = out.geometry
        kernel_map, sites = self.route(x.geometry, out)
        if kernel_map is None:
            return x.replace(linear(x.features, self.weight[0], self.bias, self.groups))
        features = convolution(
            x.features,
            self.weight,
            kernel_map,
            self.engine,
            groups=self.groups,
            compute_dtype=compute_dtype(x.features),
            bias=self.bias,
        )
        return SparseTensor(features, sites)


class Conv3d(Convolution):
    """Sparse convolution: ``out[i] = sum over (i, j, k) of x[j] @ W[k] + b``.

    Triplets follow ``in = stride * out + dilation * slot - padding``. At stride 1 the output lives
    on the input's sites (submanifold); a strided layer's sites come from the geometry
    (`VoxelGrid.strided`, `PointSet.strided`), or are given in the call.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: K per axis, any odd or even size.
        stride: per axis.
        padding: per axis; ``None`` centres odd kernels, as far as they still cover their coarse
            voxel, and lets even ones cover 0..K-1 (`pcnn.geometry.kernel_slots.usual_padding`).
        dilation: per axis.
        groups: groups of channels.
        bias: whether to learn an additive bias ``[C_out]``.
        engine: name or engine; ``None`` means ``auto``.

    Raises:
        ValueError: channels, groups, kernel or engine that do not exist or do not fit.
    """

    def route(self, geometry: Geometry, out: Geometry | None) -> tuple[KernelMap | None, Geometry]:
        """Kernel map and output sites; no map where the layer is linear on every site."""
        kernel = self.kernel
        if out is None:
            out = output_sites(geometry, kernel) if kernel.is_strided else geometry
        if out is geometry and kernel.is_pointwise:
            return None, geometry
        return geometry.kernel_map(out, kernel, self.engine), out


class SparseConv3d(Conv3d):
    """`Conv3d` that at stride 1 has every site that it reaches, and is not submanifold.

    Sites behind it are those of the input and the ones around them, so they become more with every
    such layer. A strided layer is `Conv3d`, and arguments are the same. The host waits once for the
    number of sites, in a plan too. Native points need sites that are given.
    """

    def route(self, geometry: Geometry, out: Geometry | None) -> tuple[KernelMap | None, Geometry]:
        """As of `Conv3d`, on the sites that the kernel reaches where none are given."""
        if out is None and not self.kernel.is_strided:
            out = dilated_sites(geometry, self.kernel)
        return super().route(geometry, out)


class ConvTranspose3d(Convolution):
    """Transposed sparse convolution: a convolution's triplets with input and output exchanged.

    ``out[j] = sum over (i, j, k) of x[i] @ W[k] + b`` with ``j = stride * i + dilation * k -
    padding``: the adjoint of `Conv3d` of the same kernel, and `torch.nn.ConvTranspose3d` on dense
    blocks. Arguments are those of `Conv3d`.
    """

    def route(self, geometry: Geometry, out: Geometry | None) -> tuple[KernelMap | None, Geometry]:
        """The map of the convolution between the sites, backwards, and the finer sites."""
        if out is None:
            out = geometry.generated(self.kernel)
        return out.kernel_map(geometry, self.kernel, self.engine).transpose(), out


def convolutions(model: nn.Module) -> dict[str, Convolution]:
    """The convolution layers of a network by their names."""
    found = model.named_modules()
    return {name: layer for name, layer in found if isinstance(layer, Convolution)}


class _Pool3d(nn.Module):
    """Reduce the occupied sites of every window; empty sites do not count."""

    reduction: Callable[[Tensor, KernelMap], Tensor]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size | None = None,
        dilation: Size = 1,
        engine: str | Engine | None = None,
    ) -> None:
        super().__init__()
        steps = kernel_size if stride is None else stride
        self.kernel = Kernel.of(kernel_size, steps, dilation, padding)
        self.engine = resolve(engine)

    def forward(self, x: SparseTensor, out: Geometry | None = None) -> SparseTensor:
        """Pool ``[N_in, C]`` to ``[N_out, C]`` on the strided sites, or on those given."""
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        if self.kernel.is_pointwise and (out is None or out is x.geometry):
            return x  # native points of one cell do not count for each other here either
        if out is None:
            out = output_sites(x.geometry, self.kernel)
        kernel_map = x.geometry.kernel_map(out, self.kernel, self.engine)
        return SparseTensor(type(self).reduction(x.features, kernel_map), out)


class MaxPool3d(_Pool3d):
    """Maximum over the occupied sites of a window; 0 where there is none."""

    reduction = staticmethod(reduce_max)


class AvgPool3d(_Pool3d):
    """Mean over the occupied sites of a window; 0 where there is none."""

    reduction = staticmethod(reduce_mean)


class _GlobalPool(nn.Module):
    """Reduce every cloud to one row ``[B, C]``; an empty cloud gives zeros."""

    reduction: Callable[[Tensor, KernelMap], Tensor]

    def forward(self, x: SparseTensor) -> Tensor:
        """Pool ``[N, C]`` to ``[B, C]``."""
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        grid = x.geometry
        sites = torch.arange(grid.rows, device=grid.device, dtype=torch.int32)
        clouds, many = grid.batch_index.to(torch.int32), grid.batch_size
        if grid.count is not None:  # rows without a site are those of one cloud more
            clouds, many = clouds.clamp_(max=many), many + 1
        offsets = torch.tensor([0, grid.rows])
        members = KernelMap.from_pairs(sites, clouds, offsets, grid.rows, many, False, True)
        return type(self).reduction(x.features, members)[: grid.batch_size]


class GlobalMaxPool(_GlobalPool):
    """Maximum over every cloud."""

    reduction = staticmethod(reduce_max)


class GlobalAvgPool(_GlobalPool):
    """Mean over every cloud."""

    reduction = staticmethod(reduce_mean)

"""Convolutions and pooling of one to three axes, with spconv's arguments, weights and sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.compat.spconv.pytorch.core import ConvAlgo, IndiceData, SparseConvTensor, SparseModule
from pcnn.compat.spconv.pytorch.sites import MOST_AXES, Sites, SpconvError, require
from pcnn.geometry import Kernel, KernelMap
from pcnn.nn.conv import compute_dtype, linear
from pcnn.nn.features import normalize
from pcnn.nn.fused import FoldedNorm, Product, following, is_hooked
from pcnn.ops.convolution import convolution
from pcnn.ops.engine import resolve
from pcnn.ops.reduce import reduce_max, reduce_mean

#: One number, or one an axis.
Size = int | Sequence[int]


class WindowLayer(SparseModule):
    """A layer of windows on sites: convolutions and pooling."""

    ndim: int
    subm = transposed = inverse = False

    def __init__(
        self,
        kernel_size: Size,
        stride: Size,
        padding: Size,
        dilation: Size,
        output_padding: Size,
        indice_key: str | None,
        algo: ConvAlgo | None,
        name: str | None,
    ) -> None:
        super().__init__()
        self.name = name
        sizes = kernel_size, stride, padding, dilation, output_padding
        expanded = [_per_axis(self.ndim, size) for size in sizes]
        self.kernel_size, self.stride, self.padding, self.dilation, self.output_padding = expanded
        self.indice_key, self.algo, self.engine = indice_key, algo, resolve(None)
        steps, shift = self.stride, self.padding
        if self.subm:
            # centred, without a stride; an even size has no centre: a call refuses it
            steps = [1] * self.ndim
            shift = [d * (k - 1) // 2 for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        # axes that the layer does not have are one cell wide
        one, zero = ([number] * (MOST_AXES - self.ndim) for number in (1, 0))
        window = self.kernel_size + one, steps + one, self.dilation + one, shift + zero
        self.kernel = Kernel.of(*window)

    def extra_repr(self) -> str:
        """Window, as in the constructor."""
        names = "kernel_size", "stride", "padding", "dilation", "output_padding", "algo"
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    def found(self, input: SparseConvTensor) -> IndiceData:
        """Output sites and kernel map of a layer that no other has made them for."""
        shape, source = input.spatial_shape, input.sites
        require(len(shape) == self.ndim, f"the layer has {self.ndim} axes, the tensor {len(shape)}")
        axes = list(zip(shape, self.kernel_size, self.stride, self.padding, strict=True))
        if self.subm:
            odd = all(k % 2 for k in self.kernel_size)
            require(odd, f"a submanifold kernel has odd sizes, got {self.kernel_size}")
            out_shape, target = shape, source
            kernel_map = source.map_to(source, self.kernel, self.engine)
        elif self.transposed:
            pairs = zip(axes, self.output_padding, strict=True)
            # as in spconv the dilation does not count
            out_shape = [(n - 1) * s - 2 * p + k + more for (n, k, s, p), more in pairs]
            coarse, target = source.generated(self.kernel, out_shape)
            kernel_map = target.map_to(coarse, self.kernel, self.engine).transpose()
        else:
            pairs = zip(axes, self.dilation, strict=True)
            out_shape = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for (n, k, s, p), d in pairs]
            target = source.reached(self.kernel, out_shape)
            kernel_map = source.map_to(target, self.kernel, self.engine)
        require(
            target.rows > 0 or source.rows == 0,
            f"no site of the volume {out_shape} is reached from the {source.rows} sites in {shape} "
            f"by a kernel of size {self.kernel_size}, stride {self.stride} and padding "
            f"{self.padding}; give a larger spatial_shape or padding",
        )
        own = self.subm, self.kernel_size, self.dilation
        return IndiceData(kernel_map, source, target, *own, shape, out_shape)


class SparseConvolution(WindowLayer):
    """Convolution over the sites of a volume; the base of all layers here.

    ``weight`` is ``[C_out, *kernel, C_in]`` (KRSC), as spconv's checkpoints have it. In memory the
    output channels are the innermost, where kernels read them, unless the layer is pointwise.
    """

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
        output_padding: Size = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        window = kernel_size, stride, padding, dilation, output_padding
        super().__init__(*window, indice_key, algo, name)
        require(groups == 1, f"there are no groups here, got {groups}; pcnn.nn.Conv3d has them")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.fp32_accum = fp32_accum
        slots, moved = math.prod(self.kernel_size), math.prod(self.stride) > 1
        self.conv1x1 = slots == 1 and (self.subm or not moved)
        if self.conv1x1 and not self.subm:
            unpadded = not any(self.padding)
            require(unpadded, f"a pointwise layer has no padding, got {self.padding}")
        self.weight_shape = [out_channels, *self.kernel_size, in_channels]
        like = torch.empty(0, device=device, dtype=dtype)
        if self.conv1x1:
            weight = like.new_empty(self.weight_shape)
        else:
            weight = like.new_empty(*self.weight_shape[1:], out_channels).movedim(-1, 0)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(like.new_empty(out_channels)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weights and bias uniformly from +-1 / sqrt(fan_in), as spconv does."""
        bound = 1 / math.sqrt(self.in_channels * math.prod(self.kernel_size))
        # drawn in the order of spconv's memory: one seed gives one network
        drawn = torch.empty(self.weight_shape, device=self.weight.device, dtype=self.weight.dtype)
        self.weight.copy_(drawn.uniform_(-bound, bound))
        if self.bias is not None:
            self.bias.uniform_(-bound, bound)

    # sites and maps are found in the call: compiled code leaves the layer as it is
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, input: SparseConvTensor) -> SparseConvTensor:
        """Convolve features ``[N_in, C_in]`` to ``[N_out, C_out]``."""
        features = input.features
        require(
            features.shape[1] == self.in_channels,
            f"the layer takes {self.in_channels} channels, got {features.shape[1]}",
        )
        if self.conv1x1:
            # spconv multiplies by the memory of this weight as if it were [C_in, C_out]
            matrix = self.weight.reshape(self.in_channels, self.out_channels)
            return input.replace_feature(linear(features, matrix, self.bias))
        kernel_map, place = self._placed(input)
        dtype, weight = compute_dtype(features), self._slots()
        out = convolution(
            features, weight, kernel_map, self.engine, compute_dtype=dtype, bias=self.bias
        )
        return input.on_sites(out, *place)

    def normalized(
        self, input: SparseConvTensor, norm: nn.Module, relu: bool, folded: FoldedNorm
    ) -> SparseConvTensor:
        """The layer, a batch norm and ReLU: one call where nothing can tell (`pcnn.nn.fused`)."""
        features, after = input.features, None
        own = type(self).forward is SparseConvolution.forward and not is_hooked(self)
        if own and not self.conv1x1 and features.shape[1] == self.in_channels:
            after = following(norm, self.bias, features, self.out_channels, folded)
        if after is None:
            return self._one_by_one(input, norm, relu)
        kernel_map, place = self._placed(input)
        if norm.training and place[0].rows < 2:
            return self._one_by_one(input, norm, relu)
        engine, dtype = self.engine, compute_dtype(features)
        product = Product(features, None, self._slots(), kernel_map, engine, 1, dtype)
        return input.on_sites(after.applied(product, None, relu, None), *place)

    def _one_by_one(self, input: SparseConvTensor, norm: nn.Module, relu: bool) -> SparseConvTensor:
        out: SparseConvTensor = self(input)
        if not len(out.features):
            return out
        features = normalize(norm, out.features)
        return out.replace_feature(features.relu_() if relu else features)

    def _slots(self) -> Tensor:
        """The weight as ``[K, C_in, C_out]``."""
        return self.weight.movedim(0, -1).flatten(0, self.ndim - 1)

    def _placed(
        self, input: SparseConvTensor
    ) -> tuple[KernelMap, tuple[Sites, list[int], dict[Any, IndiceData]]]:
        """Kernel map, and of the output: sites, spatial shape, what layers keep in it."""
        key, kept = self.indice_key, input.indice_dict
        data = input.find_indice_pair(key)
        own = self.kernel_size, input.spatial_shape, len(input.features)
        if self.inverse:
            if data is None or data.is_subm:
                raise SpconvError(f"indice_key {key!r} is of no layer that an inverse goes back by")
            wanted = data.ksize, data.out_spatial_shape, data.target.rows
            self._check_same(own, wanted)
            return data.kernel_map.transpose(), (data.source, data.spatial_shape, kept)
        if data is None:
            data = self.found(input)
            kept = kept if key is None else {**kept, key: data}
        else:
            both = self.subm and data.is_subm
            require(both, f"indice_key {key!r} is taken: only submanifold layers share one")
            wanted = data.ksize, data.spatial_shape, data.source.rows
            self._check_same((*own, self.dilation), (*wanted, data.dilation))
        sites = input.sites if self.subm else data.target
        return data.kernel_map, (sites, data.out_spatial_shape, kept)

    def _check_same(self, own: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
        require(
            own == wanted,
            f"indice_key {self.indice_key!r} belongs to (kernel_size, spatial_shape, sites) "
            f"{wanted}, this layer has {own}; give it a key of its own",
        )


class InverseConvolution(SparseConvolution):
    """Back to the sites that the layer of the key came from."""

    inverse = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        indice_key: str,
        bias: bool = True,
        algo: ConvAlgo | None = None,
        **others: Any,
    ) -> None:
        shape = in_channels, out_channels, kernel_size
        super().__init__(*shape, bias=bias, indice_key=indice_key, algo=algo, **others)


class SparsePool(WindowLayer):
    """Reduce the sites of every window; sites that are not there do not count."""

    reduction: Callable[[Tensor, KernelMap], Tensor]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        record_voxel_count: bool = False,
        name: str | None = None,
    ) -> None:
        window = kernel_size, kernel_size if stride is None else stride, padding, dilation, 0
        super().__init__(*window, indice_key, algo, name)

    # as of convolutions: compiled code leaves the layer as it is
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, input: SparseConvTensor) -> SparseConvTensor:
        """Pool ``[N_in, C]`` to ``[N_out, C]`` on the sites that the windows reach."""
        key, kept = self.indice_key, input.indice_dict
        require(key is None or key not in kept, f"indice_key {key!r} is taken")
        data = self.found(input)
        kept = kept if key is None else {**kept, key: data}
        rows = type(self).reduction(input.features, data.kernel_map)
        return input.on_sites(rows, data.target, data.out_spatial_shape, kept)


def _max_and_0(features: Tensor, kernel_map: KernelMap) -> Tensor:
    """Maximum of 0 and the sites of a window, per channel, as spconv has it."""
    return reduce_max(features, kernel_map).clamp_min(0)


def _per_axis(ndim: int, given: Size) -> list[int]:
    """One integer per axis, of one for all or of one each."""
    values = [int(given)] * ndim if isinstance(given, int) else [int(v) for v in given]
    require(len(values) == ndim, f"needs one integer or {ndim}, one per axis, got {given!r}")
    return values


#: Every kind of layer by the beginning of its name: its base, and what it sets there.
_KINDS: dict[str, tuple[type[WindowLayer], dict[str, Any]]] = {
    "SparseConv": (SparseConvolution, {}),
    "SubMConv": (SparseConvolution, {"subm": True}),
    "SparseConvTranspose": (SparseConvolution, {"transposed": True}),
    "SparseInverseConv": (InverseConvolution, {}),
    "SparseMaxPool": (SparsePool, {"reduction": staticmethod(_max_and_0)}),
    "SparseAvgPool": (SparsePool, {"reduction": staticmethod(reduce_mean)}),
}
#: Layers of one, two and three axes by their name; pickles find them in the package.
LAYERS: dict[str, Any] = {
    f"{name}{axes}d": type(
        f"{name}{axes}d",
        (base,),
        {"__module__": __package__, "__doc__": base.__doc__, "ndim": axes, **kind},
    )
    for name, (base, kind) in _KINDS.items()
    for axes in (1, 2, 3)
}

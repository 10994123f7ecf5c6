"""The base of all convolutions: spconv's weights and sites, our kernel maps and products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.compat.spconv.core import ConvAlgo
from pcnn.compat.spconv.pytorch.core import IndiceData, SparseConvTensor
from pcnn.compat.spconv.pytorch.sparse_module import (
    Size,
    SparseModule,
    VoxelCount,
    expand_nd,
    get_conv_output_size,
    get_deconv_output_size,
    kernel_of,
    require,
)
from pcnn.dataflows import Epilogue
from pcnn.nn.conv import compute_dtype, linear
from pcnn.ops.convolution import convolution
from pcnn.ops.engine import resolve

#: Slots up to which spconv takes its masked algorithm, and where it is asked for the fast one.
MOST_SLOTS, MOST_SLOTS_FAST = 32, 128


class SparseConvolution(SparseModule):
    """Convolution over the sites of a volume; the base of all layers here.

    ``weight`` is ``[C_out, *kernel, C_in]`` (KRSC), as spconv's checkpoints have it. In memory the
    output channels are the innermost, where kernels read them, unless the layer is pointwise.
    """

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Size = 3,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        subm: bool = False,
        output_padding: Size = 0,
        transposed: bool = False,
        inverse: bool = False,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        record_voxel_count: bool = False,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(name=name)
        require(groups == 1, f"there are no groups here, got {groups}; pcnn.nn.Conv3d has them")
        self.ndim, self.in_channels, self.out_channels = ndim, in_channels, out_channels
        self.kernel_size, self.stride = expand_nd(ndim, kernel_size), expand_nd(ndim, stride)
        self.padding, self.dilation = expand_nd(ndim, padding), expand_nd(ndim, dilation)
        self.output_padding, self.groups = expand_nd(ndim, output_padding), groups
        self.subm, self.transposed, self.inverse = subm, transposed, inverse
        slots = math.prod(self.kernel_size)
        self.conv1x1 = slots == 1 and (subm or math.prod(self.stride) == 1)
        if self.conv1x1 and not subm:
            unpadded = not any(self.padding)
            require(unpadded, f"a pointwise layer has no padding, got {self.padding}")
        self.indice_key, self.record_voxel_count = indice_key, record_voxel_count
        masked = slots <= (MOST_SLOTS_FAST if large_kernel_fast_algo else MOST_SLOTS)
        usual = ConvAlgo.MaskImplicitGemm if masked else ConvAlgo.Native
        self.algo, self.fp32_accum = usual if algo is None else algo, fp32_accum
        self.engine = resolve(None)
        self.kernel = self._relation()
        self.weight_shape = [out_channels, *self.kernel_size, in_channels]
        self.weight = nn.Parameter(self._laid_out(torch.empty(0, device=device, dtype=dtype)))
        made = torch.empty(out_channels, device=device, dtype=dtype) if bias else None
        self.bias = None if made is None else nn.Parameter(made)
        count = record_voxel_count and not subm and not inverse
        self.voxel_count = VoxelCount(self, device) if count else None
        self.reset_parameters()

    def _relation(self) -> Any:
        """The kernel in three axes; a submanifold one is centred, without a stride."""
        if not self.subm:
            return kernel_of(self.kernel_size, self.stride, self.padding, self.dilation)
        # an even size has no centre: the layer refuses it when it is called
        centre = [d * (k - 1) // 2 for k, d in zip(self.kernel_size, self.dilation, strict=True)]
        return kernel_of(self.kernel_size, [1] * self.ndim, centre, self.dilation)

    def _laid_out(self, like: Tensor) -> Tensor:
        """An empty weight, ``C_out`` innermost in memory unless the layer is pointwise."""
        if self.conv1x1:
            return like.new_empty(self.weight_shape)
        return like.new_empty(*self.weight_shape[1:], self.out_channels).movedim(-1, 0)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weights and bias uniformly from +-1 / sqrt(fan_in), as spconv does."""
        bound = 1 / math.sqrt(self.in_channels * math.prod(self.kernel_size))
        # drawn in the order of spconv's memory: one seed gives one network
        drawn = torch.empty(self.weight_shape, device=self.weight.device, dtype=self.weight.dtype)
        self.weight.copy_(drawn.uniform_(-bound, bound))
        if self.bias is not None:
            self.bias.uniform_(-bound, bound)

    def extra_repr(self) -> str:
        """Channels and kernel, as in the constructor."""
        facts = {
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "output_padding": self.output_padding,
        }
        parts = [f"{name}={value}" for name, value in facts.items()]
        if self.bias is None:
            parts.append("bias=False")
        return ", ".join([f"{self.in_channels}, {self.out_channels}", *parts, f"algo={self.algo}"])

    def is_inverseable(self) -> bool:
        """True if an inverse convolution can go back by this layer's key."""
        return self.indice_key is not None and not self.subm

    def get_max_num_voxels(self) -> Tensor | None:
        """``[1]`` int32, largest number of output sites so far; ``None``: not recorded."""
        return None if self.voxel_count is None else self.voxel_count.buffer

    # sites and maps are found in the call: compiled code leaves the layer as it is
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, input: SparseConvTensor) -> SparseConvTensor:
        """Convolve features ``[N_in, C_in]`` to ``[N_out, C_out]``."""
        return self.finished(input, None)

    def finished(self, input: SparseConvTensor, epilogue: Epilogue | None) -> SparseConvTensor:
        """`forward`, and what follows the sums before they are rounded."""
        features = input.features
        require(
            features.shape[1] == self.in_channels and len(input.spatial_shape) == self.ndim,
            f"the layer takes {self.in_channels} channels on {self.ndim} axes, got "
            f"{features.shape[1]} on {len(input.spatial_shape)}",
        )
        if self.conv1x1:
            # spconv multiplies by the memory of this weight as if it were [C_in, C_out]
            matrix = self.weight.reshape(self.in_channels, self.out_channels)
            return input.replace_feature(linear(features, matrix, self.bias))
        data = input.find_indice_pair(self.indice_key)
        if self.inverse:
            data = self._checked_inverse(input, data)
            kernel_map, sites = data.kernel_map.transpose(), data.source
            shape, kept = data.spatial_shape, input.indice_dict
        else:
            if data is None:
                data = self._found(input)
            else:
                self._check_shared(input, data)
            kernel_map, shape = data.kernel_map, data.out_spatial_shape
            sites = input.sites if self.subm else data.target
            kept = input.indice_dict
            if self.indice_key is not None and self.indice_key not in kept:
                kept = {**kept, self.indice_key: data}
        if self.voxel_count is not None:
            self.voxel_count.add(sites.rows)
        out = convolution(
            features,
            self.weight.movedim(0, -1).flatten(0, self.ndim - 1),
            kernel_map,
            self.engine,
            compute_dtype=compute_dtype(features),
            bias=self.bias if epilogue is None else None,
            epilogue=epilogue,
        )
        return input.on_sites(out, sites, shape, kept)

    def _found(self, input: SparseConvTensor) -> IndiceData:
        """Output sites and kernel map of a layer that no other has made them for."""
        shape, source = input.spatial_shape, input.sites
        if self.subm:
            odd = all(k % 2 for k in self.kernel_size)
            require(odd, f"a submanifold kernel has odd sizes, got {self.kernel_size}")
            out_shape, target = shape, source
            kernel_map = source.map_to(source, self.kernel, self.engine)
        elif self.transposed:
            own = self.kernel_size, self.stride, self.padding, self.dilation
            out_shape = get_deconv_output_size(shape, *own, self.output_padding)
            coarse, target = source.generated(self.kernel, out_shape)
            kernel_map = target.map_to(coarse, self.kernel, self.engine).transpose()
        else:
            own = self.kernel_size, self.stride, self.padding, self.dilation
            out_shape = get_conv_output_size(shape, *own)
            target = source.reached(self.kernel, out_shape)
            kernel_map = source.map_to(target, self.kernel, self.engine)
        require(
            target.rows > 0 or source.rows == 0,
            f"no site of the volume {out_shape} is reached from the {source.rows} sites in {shape} "
            f"by a kernel of size {self.kernel_size}, stride {self.stride} and padding "
            f"{self.padding}; give a larger spatial_shape or padding",
        )
        return IndiceData(
            kernel_map,
            source,
            target,
            self.subm,
            self.algo,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            shape,
            out_shape,
        )

    def _check_shared(self, input: SparseConvTensor, data: IndiceData) -> None:
        """Refuse the map of another layer that is not this layer's."""
        key = self.indice_key
        require(
            self.subm and data.is_subm,
            f"indice_key {key!r} is taken: submanifold layers share one, others need their own",
        )
        own = self.kernel_size, self.dilation, input.spatial_shape, len(input.features)
        wanted = data.ksize, data.dilation, data.spatial_shape, data.source.rows
        require(
            own == wanted,
            f"indice_key {key!r} belongs to (kernel_size, dilation, spatial_shape, sites) {wanted},"
            f" this layer has {own}; give it a key of its own",
        )

    def _checked_inverse(self, input: SparseConvTensor, data: IndiceData | None) -> IndiceData:
        """The map of the layer to go back by."""
        key = self.indice_key
        require(data is not None, f"no layer of indice_key {key!r} made the sites to go back from")
        assert data is not None
        require(
            not data.is_subm,
            f"indice_key {key!r} is of a submanifold layer; an inverse one goes back by a "
            "convolution or pooling that is not",
        )
        own = self.kernel_size, input.spatial_shape, len(input.features)
        wanted = data.ksize, data.out_spatial_shape, data.target.rows
        require(
            own == wanted,
            f"the layer of indice_key {key!r} gives (kernel_size, spatial_shape, sites) {wanted}, "
            f"its inverse got {own}",
        )
        return data

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Load as every module does; a count of sites that is not there begins at 0."""
        if self.voxel_count is not None:
            self.voxel_count.complete(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

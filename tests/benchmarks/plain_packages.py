"""Interfaces of other packages in plain torch, as far as their adapters go.

Each looks at the offsets that the package itself defines (`tests.interop.definitions`). Rows of
strided layers come in an order of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.interop import definitions as defined


def convolved(
    inputs: Tensor,
    outputs: Tensor,
    x: Tensor,
    weight: Tensor,
    offsets: list[defined.Offset],
    stride: Sequence[int],
    transposed: bool = False,
) -> Tensor:
    """As `definitions.by_offset`, slot by slot and with gradients."""
    weight = weight[None] if weight.ndim == 2 else weight
    fine, coarse = (outputs, inputs) if transposed else (inputs, outputs)
    rows = {tuple(site): row for row, site in enumerate(fine.tolist())}
    y = x.new_zeros(len(outputs), weight.shape[2])
    scale = torch.tensor((1, *stride))
    for k, offset in enumerate(offsets):
        wanted = (coarse * scale + torch.tensor((0, *offset))).tolist()
        found = torch.tensor([rows.get(tuple(site), -1) for site in wanted]).long()
        there = (found >= 0).nonzero()[:, 0]
        put, out = (there, found[there]) if transposed else (found[there], there)
        y = y.index_add(0, out, x[put] @ weight[k].to(x.dtype))
    return y


def floored(indices: Tensor, stride: Sequence[int]) -> Tensor:
    step = torch.tensor((1, *stride))
    coarse = torch.div(indices, step, rounding_mode="floor")
    return coarse.unique(dim=0).flip(0).to(indices.dtype)


def reached(indices: Tensor, offsets: list[defined.Offset], stride: Sequence[int]) -> Tensor:
    """Coarse sites o with an input at ``stride * o + offset``."""
    step, found = torch.tensor((1, *stride)), []
    for offset in offsets:
        place = indices - torch.tensor((0, *offset))
        found.append(torch.div(place, step, rounding_mode="floor")[(place % step == 0).all(1)])
    return torch.cat(found).unique(dim=0).flip(0).to(indices.dtype)


class _TorchSparseTensor:
    def __init__(self, feats: Tensor, coords: Tensor, stride: Any = 1, spatial_range: Any = None):
        self.feats, self.coords, self.stride = feats, coords, stride
        self.spatial_range, self._caches = spatial_range, {}


class _TorchSparseConv3d(nn.Module):
    def __init__(self, c_in, c_out, size, stride, padding, bias, transposed):  # type: ignore[no-untyped-def]
        super().__init__()
        self.size, self.stride, self.transposed = size, stride, transposed
        self.padding = padding

    def forward(self, x: _TorchSparseTensor) -> _TorchSparseTensor:
        offsets = defined.torchsparse_offsets(self.size)
        if any(k % 2 == 0 or s > 1 for k, s in zip(self.size, self.stride, strict=True)):
            low = torch.tensor(offsets).amin(0) + torch.tensor(self.padding)
            offsets = [tuple((torch.tensor(o) - low).tolist()) for o in offsets]
        stride = tuple(x.stride)
        sites = x._caches.setdefault(stride, x.coords)
        assert sites is x.coords, "rows of a level stay where they are"
        if self.transposed:
            target = tuple(t // s for t, s in zip(stride, self.stride, strict=True))
            out = x._caches[target]
        else:
            target = tuple(t * s for t, s in zip(stride, self.stride, strict=True))
            if target != stride and target not in x._caches:
                x._caches[target] = reached(x.coords, offsets, self.stride)
            out = x._caches[target]
        y = convolved(x.coords, out, x.feats, self.kernel, offsets, self.stride, self.transposed)
        axes = zip(x.spatial_range[1:], self.stride, strict=True)
        found = _TorchSparseTensor(y, out, target, (x.spatial_range[0], *(n // s for n, s in axes)))
        found._caches = x._caches
        return found


TORCHSPARSE = SimpleNamespace(SparseTensor=_TorchSparseTensor)
TORCHSPARSE_LAYERS = SimpleNamespace(Conv3d=_TorchSparseConv3d)


class _Manager:
    def __init__(self) -> None:
        self.levels: dict[Any, Tensor] = {}

    def get_coordinates(self, key: Any) -> Tensor:
        return self.levels[key]


class _MinkowskiTensor:
    def __init__(
        self,
        features: Tensor,
        coordinates: Tensor | None = None,
        coordinate_map_key: Any = None,
        coordinate_manager: Any = None,
    ):
        self.F, self.coordinate_map_key = features, coordinate_map_key or (1, 1, 1)
        self.coordinate_manager = coordinate_manager or _Manager()
        if coordinates is not None:
            self.coordinate_manager.levels[self.coordinate_map_key] = coordinates


class _MinkowskiConvolution(nn.Module):
    transposed = False

    def __init__(self, c_in, c_out, kernel_size, stride, dilation, bias, dimension):  # type: ignore[no-untyped-def]
        super().__init__()
        self.size, self.stride = kernel_size, stride

    def forward(self, x: _MinkowskiTensor, coordinates: Any = None) -> _MinkowskiTensor:
        assert x.F.dtype == torch.float32
        offsets = defined.minkowski_offsets(self.size)
        key, manager = x.coordinate_map_key, x.coordinate_manager
        here = manager.levels[key]
        own = torch.tensor((1, *key))
        if coordinates is None:
            coordinates = tuple(t * s for t, s in zip(key, self.stride, strict=True))
            if coordinates not in manager.levels:
                wide = floored(here // own, self.stride) * own * torch.tensor((1, *self.stride))
                manager.levels[coordinates] = wide.int()
        out = manager.levels[coordinates]
        units = out // torch.tensor((1, *coordinates))
        y = convolved(here // own, units, x.F, self.kernel, offsets, self.stride, self.transposed)
        return _MinkowskiTensor(y, None, coordinates, manager)


class _MinkowskiTransposed(_MinkowskiConvolution):
    transposed = True


MINKOWSKI = SimpleNamespace(
    SparseTensor=_MinkowskiTensor,
    MinkowskiConvolution=_MinkowskiConvolution,
    MinkowskiConvolutionTranspose=_MinkowskiTransposed,
)


class _Voxels:
    def __init__(self, coords: Tensor, features: Tensor, offsets: Tensor, **extra: Any):
        assert int(offsets[-1]) == len(coords) == len(features)
        self.coordinate_tensor, self.feature_tensor, self.offsets = coords, features, offsets
        self.cache = extra.get("_cache")

    @property
    def batch_indexed_coordinates(self) -> Tensor:
        sizes = self.offsets.diff().long()
        batch = torch.arange(len(sizes)).repeat_interleave(sizes)[:, None]
        return torch.cat([batch.to(self.coordinate_tensor.dtype), self.coordinate_tensor], 1)

    def replace(self, batched_features: Tensor, **extra: Any) -> _Voxels:
        given = {"_cache": self.cache} | extra
        return _Voxels(self.coordinate_tensor, batched_features, self.offsets, **given)


class _WarpConv3d(nn.Module):
    def __init__(self, c_in, c_out, size, stride, dilation, bias, transposed):  # type: ignore[no-untyped-def]
        super().__init__()
        self.size, self.stride, self.transposed = size, stride, transposed

    def forward(self, x: _Voxels, out: _Voxels | None = None) -> _Voxels:
        offsets = defined.warpconvnet_offsets(self.size)
        here = x.batch_indexed_coordinates
        sites = here if out is None else out.batch_indexed_coordinates
        if out is None and any(s > 1 for s in self.stride):
            sites = floored(here, self.stride)
            sites = sites[torch.argsort(sites[:, 0], stable=True)]
        y = convolved(
            here, sites, x.feature_tensor, self.weight, offsets, self.stride, self.transposed
        )
        sizes = torch.bincount(sites[:, 0].long(), minlength=len(x.offsets) - 1)
        ends = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return _Voxels(sites[:, 1:], y, ends, _cache=x.cache or ["maps"])


WARP_TENSORS = SimpleNamespace(Voxels=_Voxels)
WARP_LAYERS = SimpleNamespace(SparseConv3d=_WarpConv3d)


def _centred(
    size: Sequence[int], padding: Sequence[int], dilation: Sequence[int] = (1, 1, 1)
) -> list[defined.Offset]:
    axes = (d * torch.arange(k) - p for k, p, d in zip(size, padding, dilation, strict=True))
    return [tuple(slot) for slot in torch.cartesian_prod(*axes).tolist()]


def _submanifold(feats, coords, shape, weight, bias, cache, dilation):  # type: ignore[no-untyped-def]
    size = weight.shape[1:4]
    slots = weight.flatten(1, 3).permute(1, 2, 0)
    offsets = _centred(size, [k // 2 for k in size])
    assert (bias is not None) == torch.is_grad_enabled()
    return convolved(coords, coords, feats, slots, offsets, (1, 1, 1)), cache or "map"


def _strided(feats, coords, shape, weight, bias, cache, out_coords, stride, padding, dilation):  # type: ignore[no-untyped-def]
    offsets = _centred(weight.shape[1:4], padding)
    sites = reached(coords, offsets, stride) if out_coords is None else out_coords
    slots = weight.flatten(1, 3).permute(1, 2, 0)
    return convolved(coords, sites, feats, slots, offsets, stride), sites, cache or "map"


FLEXGEMM = SimpleNamespace(sparse_submanifold_conv3d=_submanifold, sparse_conv3d=_strided)


class _PointConv3d(nn.Module):
    def __init__(self, c_in, c_out, size, groups, bias):  # type: ignore[no-untyped-def]
        super().__init__()

    def forward(self, x: Tensor, i: Tensor, j: Tensor, k: Tensor, n: int) -> Tensor:
        assert bool((k.diff() >= 0).all())
        terms = torch.einsum("tc,tco->to", x[j.long()], self.weight[k.long(), 0])
        return x.new_zeros(n, terms.shape[1]).index_add(0, i.long(), terms)


POINT_LAYERS = SimpleNamespace(PointConv3d=_PointConv3d)

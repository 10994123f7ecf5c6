"""spconv's interface in plain torch: a stand-in for the package, as far as its adapter goes.

Rows of a strided layer come in an order of their own, as those of a hash table do.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


class ConvAlgo:
    Native = "Native"


@dataclass
class SparseConvTensor:
    features: Tensor
    indices: Tensor
    spatial_shape: list[int]
    batch_size: int
    indice_dict: dict[str, Any] = field(default_factory=dict)


class _Layer(nn.Module):
    kind = "subm"

    def __init__(self, c_in: int, c_out: int, size: list[int], **words: Any) -> None:
        super().__init__()
        self.size, self.words, self.indice_key = size, words, words.get("indice_key")
        self.weight = nn.Parameter(torch.zeros(c_out, *size, c_in))

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        assert x.indices.dtype == torch.int32
        assert int(x.indices.min()) >= 0
        maps = dict(x.indice_dict)
        if self.size == [1, 1, 1] and self.kind == "subm":
            y = torch.mm(x.features, self.weight.view(x.features.shape[1], -1))
            return SparseConvTensor(y, x.indices, x.spatial_shape, x.batch_size, maps)
        if self.kind == "inverse":
            target, source, shape, pairs = maps[self.indice_key]
            assert source is x.indices
            pairs = [(out, put) for put, out in pairs]
        else:
            if self.indice_key in maps:
                assert self.kind == "subm", "only support reuse subm indices"
            else:
                maps[self.indice_key] = self.built(x)
            _, target, shape, pairs = maps[self.indice_key]
            if self.kind == "subm":
                shape = x.spatial_shape
        slots = self.weight.flatten(1, 3)
        y = x.features.new_zeros(len(target), len(self.weight))
        for k, (put, out) in enumerate(pairs):
            y = y.index_add(0, out, x.features[put] @ slots[:, k].t())
        return SparseConvTensor(y, target, shape, x.batch_size, maps)

    def built(self, x: SparseConvTensor) -> tuple[Any, ...]:
        """Input rows, output rows, shape of the input, and (input, output) of every slot."""
        subm = self.kind == "subm"
        dilation = self.words.get("dilation", [1] * 3)
        stride = [1] * 3 if subm else self.words["stride"]
        halves = [k // 2 * d for k, d in zip(self.size, dilation, strict=True)]
        padding = halves if subm else self.words["padding"]
        shape = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                x.spatial_shape, padding, dilation, self.size, stride, strict=True
            )
        ]
        found = []
        for slot in itertools.product(*map(range, self.size)):
            step = torch.tensor(slot) * torch.tensor(dilation)
            place = x.indices[:, 1:] + torch.tensor(padding) - step
            whole = (place % torch.tensor(stride) == 0).all(1)
            at = torch.div(place, torch.tensor(stride), rounding_mode="floor")
            whole &= ((at >= 0) & (at < torch.tensor(shape))).all(1)
            found.append((whole.nonzero()[:, 0], torch.cat([x.indices[:, :1], at], 1)[whole]))
        if subm:
            target = x.indices
        else:
            target = torch.cat([at for _, at in found]).unique(dim=0).flip(0).int()
        rows = {tuple(site): row for row, site in enumerate(target.tolist())}
        pairs = []
        for put, at in found:
            out = torch.tensor([rows.get(tuple(site), -1) for site in at.tolist()]).long()
            pairs.append((put[out >= 0], out[out >= 0]))
        return x.indices, target, x.spatial_shape if subm else shape, pairs


class SubMConv3d(_Layer):
    pass


class SparseConv3d(_Layer):
    kind = "strided"

    def __init__(
        self,
        c_in: int,
        c_out: int,
        size: list[int],
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        **words: Any,
    ) -> None:
        geometry = {"stride": stride, "padding": padding, "dilation": dilation}
        super().__init__(c_in, c_out, size, **geometry, **words)


class SparseInverseConv3d(_Layer):
    kind = "inverse"

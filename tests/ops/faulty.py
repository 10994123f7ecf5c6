"""Dataflows and map builders that are right in most cases, each wrong in a way of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Reference
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import SortedSearch

#: By flaw of a dataflow, what a refusal says of it.
DATAFLOW_FLAWS = {
    "transposed": r"n=300, .*, grad_x",
    "float16": r"n=300, .*, out: .* bound 5.0e-04",
    "even": r"n=300, .*, out",
    "epilogue": r"epilogue 'abr\+'",
    "small": r"n=1, .*, out|n=65, .*, out",
    "last_row": r"out: the relative RMS error is .*, its bound",
    "mirrored": r"grad_x",
    "groups": r"groups=3",
    "skip": r"skip connection of 5",
    "mirrored_skip": r"skip connection of 5.*, mirrored",
    "weight_gradient": r"grad_weight",
    "random": r"two runs differ",
    "dtype": r"torch.float32 \[\d+, 32\] instead of torch.float16",
    "raises": r"KeyError",
}
BUILDER_FLAWS = {
    "even": r"of which \d+ are among the \d+ true ones",
    "clouds": r"of which",
    "order": r"not ordered by slot, then output row",
    "given": r"given sites",
    "symmetric": r"slots, symmetric\) are",
}


@dataclass(frozen=True)
class Faulty(Reference):
    """The reference with one flaw."""

    flaw: str = ""
    name: str = "faulty"

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        transposed, compute_dtype, groups = spec.transposed, spec.compute_dtype, spec.groups
        if self.flaw == "epilogue":
            spec = spec._replace(epilogue=None)
        if self.flaw == "mirrored":
            spec = spec._replace(mirrored=False)
        if self.flaw == "skip" and spec.skip is not None:
            spec = spec._replace(skip=torch.zeros_like(spec.skip))
        if self.flaw == "mirrored_skip" and spec.skip is not None and spec.mirrored:
            spec = spec._replace(skip=torch.zeros_like(spec.skip))
        if self.flaw == "raises" and w.shape[0] == 125:
            raise KeyError("no blocks for 125 slots")
        out = super().forward(x, w, layouts, n_out, spec)
        wrong = {
            "transposed": transposed,
            "float16": compute_dtype == torch.float16,
            "even": w.shape[0] % 2 == 0,
            "small": n_out < 70,
            "groups": groups > 1,
        }
        if wrong.get(self.flaw):
            out = out * 1.01
        if self.flaw == "last_row" and n_out:
            out[-1] = 0
        if self.flaw == "random":
            few = (torch.rand(out.shape) < 0.05).to(out)
            out = out * (1 + torch.finfo(out.dtype).eps * few)
        return out.float() if self.flaw == "dtype" else out

    def weight_grad(self, *args: Any) -> Tensor:
        found = super().weight_grad(*args)
        return found * 1.01 if self.flaw == "weight_gradient" else found


@dataclass(frozen=True)
class FaultyBuilder:
    """The sorted search with one flaw."""

    flaw: str
    name: str = "faulty_builder"

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        built = SortedSearch().build(source, target, kernel)
        in_index, out_index, offsets = (t.clone() for t in built.layout("pairs"))
        symmetric, count = built.symmetric and self.flaw != "symmetric", len(in_index)
        wrong = {
            "even": kernel.volume % 2 == 0,
            "clouds": source.batch_size > 1,
            "given": kernel.stride == (1, 1, 1) and target is not source,
        }
        if wrong.get(self.flaw) and count:
            in_index[-1] = (in_index[-1] + 1) % source.rows
        if self.flaw == "order" and offsets[1] - offsets[0] > 1:
            for rows in (in_index, out_index):
                rows[: offsets[1]] = rows[: offsets[1]].flip(0)
        return KernelMap.from_pairs(
            in_index, out_index, offsets, source.rows, target.rows, symmetric=symmetric
        )

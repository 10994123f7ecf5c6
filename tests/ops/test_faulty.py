"""A dataflow or builder that is wrong in any case is refused, and never chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Reference
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import SortedSearch
from pcnn.ops.conformance import Nonconforming, check_builder, check_dataflow
from tests.engines import BUILDERS, DATAFLOWS, KERNEL_BUILDERS

#: By flaw of a dataflow, what a refusal says of it.
DATAFLOW_FLAWS = {
    "transposed": r"n=300.*grad_x",
    "epilogue": r"epilogue='abr\+'",
    "small": r"n=(1|65).*out",
    "last_row": r"out: RMS error",
    "mirrored": r"grad_x",
    "mirrored_skip": r"c_skip=5.*, mirrored",
    "weight_gradient": r"grad_weight",
    "random": r"two runs differ",
    "raises": r"KeyError",
}
BUILDER_FLAWS = "even", "order", "given", "symmetric"


@dataclass(frozen=True)
class Faulty(Reference):
    """The reference with one flaw."""

    flaw: str = ""

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if self.flaw == "epilogue":
            spec = spec._replace(epilogue=None)
        if self.flaw == "mirrored":
            spec = spec._replace(mirrored=False)
        if self.flaw == "mirrored_skip" and spec.skip is not None and spec.mirrored:
            spec = spec._replace(skip=torch.zeros_like(spec.skip))
        if self.flaw == "raises" and w.shape[0] == 125:
            raise KeyError("no blocks for 125 slots")
        out = super().forward(x, w, layouts, n_out, spec)
        if (self.flaw == "transposed" and spec.transposed) or (self.flaw == "small" and n_out < 70):
            out = out * 1.01
        if self.flaw == "last_row" and n_out:
            out[-1] = 0
        if self.flaw == "random":
            few = (torch.rand(out.shape) < 0.05).to(out)
            out = out * (1 + torch.finfo(out.dtype).eps * few)
        return out

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


CPU = torch.device("cpu")


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=str)
def test_right_dataflows_pass(dataflow) -> None:
    check_dataflow(dataflow, CPU)


@pytest.mark.parametrize(("flaw", "message"), DATAFLOW_FLAWS.items())
def test_a_dataflow_with_one_flaw_is_refused(flaw: str, message: str) -> None:
    with pytest.raises(Nonconforming, match=message) as caught:
        check_dataflow(Faulty(flaw=flaw), CPU)
    assert flaw in str(caught.value)


@pytest.mark.parametrize("builder", [b for b in BUILDERS if b not in KERNEL_BUILDERS], ids=str)
def test_right_builders_pass(builder) -> None:
    check_builder(builder, CPU)


@pytest.mark.parametrize("flaw", BUILDER_FLAWS)
def test_a_builder_with_one_flaw_is_refused(flaw: str) -> None:
    with pytest.raises(Nonconforming, match="faulty_builder"):
        check_builder(FaultyBuilder(flaw), CPU)

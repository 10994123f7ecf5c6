"""A dataflow or builder that is wrong in any case is refused, and never chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Reference
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import SortedSearch
from pcnn.maps.conformance import Nonconforming, check_builder
from pcnn.ops.conformance import check_dataflow
from tests.engines import BUILDERS, DATAFLOWS, KERNEL_BUILDERS
from tests.ops.faulty import BUILDER_FLAWS, DATAFLOW_FLAWS, Faulty, FaultyBuilder

CPU = torch.device("cpu")


def faulty(flaw: str) -> Faulty:
    return Faulty(flaw=flaw, name=f"faulty_{flaw}")


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
def test_right_dataflows_pass(dataflow) -> None:
    check_dataflow(dataflow, CPU)


@pytest.mark.parametrize(("flaw", "message"), DATAFLOW_FLAWS.items())
def test_a_dataflow_with_one_flaw_is_refused(flaw: str, message: str) -> None:
    with pytest.raises(Nonconforming, match=message) as caught:
        check_dataflow(faulty(flaw), CPU)
    assert f"faulty_{flaw}" in str(caught.value)


@pytest.mark.parametrize("builder", [b for b in BUILDERS if b not in KERNEL_BUILDERS], ids=str)
def test_right_builders_pass(builder) -> None:
    check_builder(builder, CPU)


@pytest.mark.parametrize(("flaw", "message"), BUILDER_FLAWS.items())
def test_a_builder_with_one_flaw_is_refused(flaw: str, message: str) -> None:
    with pytest.raises(Nonconforming, match=message) as caught:
        check_builder(FaultyBuilder(flaw), CPU)
    assert "faulty_builder" in str(caught.value)


@dataclass(frozen=True)
class Refusing(SortedSearch):
    """Sorted search of few sites."""

    name: str = "refusing"
    most: int = 0

    def build(self, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
        if target.rows > self.most:
            raise ValueError("too many sites")
        return super().build(source, target, kernel)


@dataclass(frozen=True)
class RefusingFlow(Reference):
    """The reference for few rows."""

    name: str = "refusing"
    most: int = -1

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if n_out > self.most:
            raise ValueError("too many rows")
        return super().forward(x, w, layouts, n_out, spec)


def test_what_refuses_everything_has_passed_no_check() -> None:
    for _ in range(2):  # nor is it remembered
        with pytest.raises(Nonconforming, match="refuses all"):
            check_builder(Refusing(), CPU)  # all but empty clouds
        with pytest.raises(Nonconforming, match="refuses all"):
            check_dataflow(RefusingFlow(), CPU)
    check_builder(Refusing(most=30), CPU)
    check_dataflow(RefusingFlow(most=70), CPU)


def test_the_check_leaves_random_numbers_and_tf32_as_they_are() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    torch.backends.cuda.matmul.allow_tf32 = True
    check_dataflow(Faulty(name="faultless"), CPU)
    assert torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    assert torch.equal(torch.rand(3), expected)

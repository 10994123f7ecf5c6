"""What refuses everything has passed no check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Reference
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import SortedSearch
from pcnn.maps.conformance import WrongMap, check_builder
from pcnn.ops.conformance import Nonconforming, check_dataflow

CPU = torch.device("cpu")


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


def test_a_builder_that_refuses_all_but_empty_clouds_does_not_pass() -> None:
    for _ in range(2):  # nor is it remembered
        with pytest.raises(WrongMap, match="refuses every map"):
            check_builder(Refusing(), CPU)
    check_builder(Refusing(most=30), CPU)


def test_a_dataflow_that_refuses_every_case_does_not_pass() -> None:
    for _ in range(2):
        with pytest.raises(Nonconforming, match="refuses all"):
            check_dataflow(RefusingFlow(), CPU)
    check_dataflow(RefusingFlow(most=70), CPU)

"""Small kernel maps, padded buffers, and dataflows that multiply by kernels on any device."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.dataflows import ConvSpec, Dataflow, Reference
from pcnn.dataflows.grouping import Adaptive
from pcnn.dataflows.padded_buffer import PaddedBuffer, padded_buffer
from pcnn.geometry import Kernel, KernelMap
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.maps import SortedSearch
from pcnn.ops.conformance import Case, moved
from tests.clouds import surface_grid

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not torch.cuda.is_available() and not INTERPRETED:
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

DEVICE = "cpu" if INTERPRETED else "cuda"

#: Kernel, whether the map is read transposed.
MAPS = {
    "submanifold": (Kernel.of(3), False),
    "strided": (Kernel.of(2, 2), False),
    "transposed": (Kernel.of(2, 2), True),
}


def make(kernel: Kernel, transposed: bool = False, n: int = 40) -> KernelMap:
    grid = surface_grid(n, batch_size=2).to(DEVICE)
    kernel_map = SortedSearch().build(grid, grid.strided(kernel), kernel)
    return kernel_map.transpose() if transposed else kernel_map


def placed(kernel_map: KernelMap) -> PaddedBuffer:
    (identity,) = kernel_map.layout("identity_slot")[0].tolist()
    return padded_buffer(tuple(kernel_map.offsets.tolist()), Adaptive(0.5), identity, False)


def buffer_row(kernel_map: KernelMap, place: PaddedBuffer) -> Tensor:
    """``[T]`` int64, buffer row of every triplet."""
    shifts = torch.tensor(place.shifts, device=DEVICE)
    return torch.arange(kernel_map.triplets, device=DEVICE) + shifts[kernel_map.slot_index]


@dataclass(frozen=True)
class Given(Case):
    """A layer over a map that is given; its kernel counts for nothing."""

    built: KernelMap | None = None

    def map(self) -> KernelMap:
        assert self.built is not None
        return self.built


def given(built: KernelMap, c_in: int, c_out: int, *more: Any, **settings: Any) -> Given:
    built = moved(built, DEVICE)
    return Given(Kernel.of(1), c_in, c_out, *more, **settings, device=DEVICE, built=built)


@dataclass(frozen=True)
class ImplicitGemm:
    """The kernel behind `OutputStationary`, with blocks for small clouds."""

    blocks: GemmBlocks | None = None
    needs: tuple[str, ...] = ("steps",)
    needs_weight_grad: tuple[str, ...] = ("pairs",)
    fuses: bool = True
    deterministic: bool = True

    @property
    def name(self) -> str:
        return f"gemm_{self.needs[0]}_{self.blocks.name if self.blocks else None}"

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        from pcnn.kernels.gather_gemm import launch_gather_gemm

        return launch_gather_gemm(x, w, layouts, n_out, spec, self.blocks)

    def weight_grad(self, *args: Any) -> Tensor:
        return Reference().weight_grad(*args)


def product(flow: Dataflow, kernel_map: KernelMap, x: Tensor, w: Tensor, spec: ConvSpec) -> Tensor:
    return flow.forward(x, w, kernel_map.layouts(flow.needs), kernel_map.n_out, spec)

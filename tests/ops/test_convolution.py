import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from pcnn.dataflows import Dataflow, Epilogue, Reference
from pcnn.geometry import Kernel, KernelMap, layouts
from pcnn.maps import SortedSearch
from pcnn.ops import convolution
from tests.clouds import surface_grid
from tests.engines import DATAFLOWS, SEVERAL_PER_SLOT
from tests.random_maps import random_map

CASES = {
    "submanifold": (Kernel.of(3), 1, False),
    "strided": (Kernel.of(3, 2), 1, False),
    "transposed": (Kernel.of(2, 2), 1, True),
    "mirrored": (Kernel.of(3), 1, True),
    "grouped": (Kernel.of((1, 3, 2)), 2, False),
    "grouped_transposed": (Kernel.of(3, 2), 2, True),
    "several a slot": (None, 1, False),
    "several a slot, grouped, transposed": (None, 2, True),
}
#: The reference in every case, each other dataflow in one case it serves.
DERIVED = [
    *((Reference(), name) for name in CASES),
    *zip(DATAFLOWS[1:], itertools.cycle(list(CASES)[:6]), strict=False),
    *zip(SEVERAL_PER_SLOT[1:], itertools.cycle(list(CASES)[6:]), strict=False),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "BLOCK_ROWS", 5)


def make(kernel: Kernel | None, transposed: bool, n: int = 6) -> KernelMap:
    if kernel is None:
        kernel_map = random_map(6, 6, 3, 20, symmetric=True)
    else:
        grid = surface_grid(n, batch_size=2)
        kernel_map = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    return kernel_map.transpose() if transposed else kernel_map


def inputs(kernel_map: KernelMap, groups: int, c_in: int = 4, c_out: int = 2) -> list[torch.Tensor]:
    shapes = [(kernel_map.n_in, c_in), (kernel_map.volume, c_in // groups, c_out)]
    return [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]


@pytest.mark.parametrize(("dataflow", "case"), DERIVED, ids=lambda v: getattr(v, "name", v))
def test_first_and_second_derivatives(dataflow: Dataflow, case: str) -> None:
    kernel, groups, transposed = CASES[case]
    kernel_map = make(kernel, transposed)
    tensors = inputs(kernel_map, groups)

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return convolution(x, weight, kernel_map, dataflow, groups=groups)

    # each product of every dataflow is held to the reference's by the checks of conformance
    projected = dataflow != Reference()
    assert gradcheck(run, tensors, fast_mode=projected)
    assert gradgradcheck(run, tensors, fast_mode=projected)


@pytest.mark.parametrize("which", ["x", "weight", "skip", "shift"])
def test_an_epilogue_does_not_lose_gradients(which: str) -> None:
    kernel_map = make(Kernel.of(3), False)
    tensors = {
        "x": torch.randn(kernel_map.n_in, 4),
        "weight": torch.randn(27, 6, 2),
        "skip": torch.randn(kernel_map.n_in, 2),
        "shift": torch.randn(2),
    }
    tensors[which].requires_grad_()

    def call() -> torch.Tensor:
        follows = {"skip": tensors["skip"], "epilogue": Epilogue(shift=tensors["shift"])}
        return convolution(tensors["x"], tensors["weight"], kernel_map, Reference(), **follows)

    with pytest.raises(ValueError, match="for inference"):
        call()
    with torch.no_grad():
        assert call().shape == (kernel_map.n_out, 2)

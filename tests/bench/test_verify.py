from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pcnn.bench import oracle
from pcnn.bench.layers.layer import Layer, Operands
from pcnn.bench.scenes import noise
from pcnn.bench.verify import CheckFailed, Configuration, check_triplets, check_values
from pcnn.geometry import Kernel, KernelMap, VoxelGrid, grid_of_cells
from pcnn.ops.engine import resolve

CPU = torch.device("cpu")


def grid(n: int = 300) -> VoxelGrid:
    cells = torch.from_numpy(noise(n, fill=0.2)) - 3  # negative coordinates too
    return grid_of_cells(cells, torch.arange(len(cells)) % 2)


def configuration(kernel: Kernel, dtype: str = "float32", backward: bool = False) -> Configuration:
    return Configuration("reference", "noise", "cpu", kernel, dtype, 3, 5, backward)


@pytest.mark.parametrize("size", [1, 2, 3, (3, 1, 5)], ids=str)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_oracle_agrees_with_a_comparison_of_all_pairs(size, stride) -> None:
    source, kernel = grid(120), Kernel.of(size, stride)
    target = source.strided(kernel)
    found = oracle.triplets(source, target, kernel)
    inputs = source.coords.long()
    outputs = torch.div(target.coords.long(), torch.tensor((1, *target.tensor_stride)))
    outputs = outputs.floor().long()
    step = torch.tensor((1, *kernel.stride))
    for (j, i), offset in zip(found, kernel.offsets, strict=True):
        wanted = outputs * step + torch.tensor((0, *offset))
        match = (wanted[:, None] == inputs[None]).all(-1).nonzero()  # rows (i, j)
        got = torch.stack([i, j], 1)
        assert torch.equal(got[(got[:, 0] * len(inputs) + got[:, 1]).argsort()], match)


def test_the_oracle_knows_empty_grids() -> None:
    empty = grid_of_cells(torch.zeros(0, 3, dtype=torch.int64))
    assert all(len(j) == 0 for j, _ in oracle.triplets(empty, empty, Kernel.of(3)))


def test_a_right_map_passes_and_a_wrong_one_does_not() -> None:
    source, kernel = grid(), Kernel.of(3)
    built = resolve("reference").builder.build(source, source, kernel)
    truth = oracle.triplets(source, source, kernel)
    assert check_triplets(configuration(kernel), built, truth)
    swapped = built.in_index.clone()
    swapped[:2] = swapped[:2].flip(0)
    shifted = built.offsets.clone()
    shifted[1] += 1
    n = source.rows
    for wrong in (
        KernelMap.from_pairs(swapped, built.out_index, built.offsets, n, n),
        KernelMap.from_pairs(built.in_index, built.out_index, shifted, n, n),
    ):
        with pytest.raises(CheckFailed, match="in common"):
            check_triplets(configuration(kernel), wrong, truth)


@pytest.mark.parametrize("dtype", ["float64", "float32", "tf32", "bfloat16", "float16"])
def test_every_dtype_of_the_reference_passes(dtype: str) -> None:
    source, kernel = grid(), Kernel.of(3)
    engine = resolve("reference")
    sizes = source.rows, source.rows, kernel.volume
    layer = Layer(engine, source, kernel, Operands.random(sizes, (3, 5), dtype, CPU))
    x, weight, grad = layer.operands.x, layer.operands.weight, layer.operands.grad
    pairs = oracle.triplets(source, source, kernel)
    truth = vars(oracle.products(pairs, x, weight, grad))
    results = dict(zip(("out", "grad_x", "grad_weight"), layer.train(), strict=True))
    assert check_values(configuration(kernel, dtype, backward=True), results, truth)


def damaged_row(out: torch.Tensor) -> torch.Tensor:
    out = out.clone()
    out[7] = 0.0
    return out


def unwritten(out: torch.Tensor) -> torch.Tensor:
    out = out.clone()
    out[-1, -1] = float("nan")
    return out


@pytest.mark.parametrize(
    "damage",
    [damaged_row, unwritten, lambda out: out * 1.001, lambda out: out[:-1], torch.zeros_like],
    ids=["one row missing", "nan", "0.1 % off", "shape", "zeros"],
)
def test_wrong_values_get_no_proof(damage) -> None:
    kernel = Kernel.of(3)
    truth = {"out": torch.randn(500, 5, dtype=torch.float64)}
    with pytest.raises(CheckFailed):
        check_values(configuration(kernel), {"out": damage(truth["out"].float())}, truth)


def test_a_missing_result_gets_no_proof() -> None:
    truth = {"out": torch.ones(2, 2).double(), "grad_x": torch.ones(2, 2).double()}
    with pytest.raises(CheckFailed, match="results"):
        check_values(configuration(Kernel.of(3)), {"out": torch.ones(2, 2)}, truth)


def test_a_proof_serves_its_own_configuration_only() -> None:
    checked = configuration(Kernel.of(3))
    proof = check_values(checked, {"out": torch.ones(2, 2)}, {"out": torch.ones(2, 2).double()})
    proof.admit(checked)
    for other in (
        replace(checked, c_in=4),
        replace(checked, engine="spira"),
        replace(checked, backward=True),
    ):
        with pytest.raises(CheckFailed, match="check the configuration that is timed"):
            proof.admit(other)

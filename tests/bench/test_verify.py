from __future__ import annotations

import pytest
import torch

from pcnn.bench import oracle
from pcnn.bench.clouds import room
from pcnn.bench.layer_shape import LayerShape
from pcnn.bench.layers.layer import Layer, Operands, true_layer
from pcnn.bench.native.variants import GEOMETRIES, sites_of
from pcnn.bench.place import Place
from pcnn.bench.rows import Row
from pcnn.bench.scenes import noise
from pcnn.bench.verify import CheckFailed, check_triplets, check_values
from pcnn.geometry import Kernel, KernelMap, VoxelGrid, grid_of_cells, point_set_of
from pcnn.ops.engine import resolve

CPU = torch.device("cpu")
CLOUD = room(0, 600, CPU)


def grid(n: int = 300) -> VoxelGrid:
    cells = torch.from_numpy(noise(n, fill=0.2)) - 3  # negative coordinates too
    return grid_of_cells(cells, torch.arange(len(cells)) % 2)


def row(dtype: str = "float32") -> Row:
    return Row("layer", "noise", "reference", dtype=dtype)


@pytest.mark.parametrize(("size", "stride"), [(1, 2), (2, 2), (3, 1), ((3, 1, 5), 3)], ids=str)
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
    empty = grid_of_cells(torch.zeros(0, 3, dtype=torch.int64))
    assert all(len(j) == 0 for j, _ in oracle.triplets(empty, empty, kernel))


def test_a_right_map_passes_and_a_wrong_one_does_not() -> None:
    source, kernel = grid(), Kernel.of(3)
    built = resolve("reference").builder.build(source, source, kernel)
    truth = oracle.triplets(source, source, kernel)
    assert check_triplets(row(), built, truth)
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
            check_triplets(row(), wrong, truth)


def test_every_dtype_of_the_reference_passes() -> None:
    source, kernel = grid(), Kernel.of(3)
    sizes = source.rows, source.rows, kernel.volume
    place = Place("noise", source, kernel)
    for dtype in ("float64", "float32", "tf32", "bfloat16", "float16"):
        operands = Operands.random(sizes, LayerShape(3, 5, 3), dtype, CPU)
        results = Layer(resolve("reference"), source, kernel, operands).results("train")
        assert check_values(row(dtype), results, true_layer(place, operands, True)), dtype


def test_wrong_values_get_no_proof() -> None:
    right = torch.randn(500, 5)
    truth = {"out": right.double()}
    missing, unwritten = right.clone(), right.clone()
    missing[7] = 0.0
    unwritten[-1, -1] = float("nan")
    for wrong in (missing, unwritten, right * 1.001, right[:-1], torch.zeros_like(right)):
        with pytest.raises(CheckFailed):
            check_values(row(), {"out": wrong}, truth)
    with pytest.raises(CheckFailed, match="results"):
        check_values(row(), {"out": right}, truth | {"grad_x": truth["out"]})


def test_gradients_of_groups_are_those_of_blocks_of_the_dense_weights() -> None:
    source = grid(80)
    pairs = oracle.triplets(source, source, Kernel.of(3))
    x, grad = torch.randn(source.rows, 4), torch.randn(source.rows, 6)
    weight = torch.randn(27, 2, 6)
    dense = oracle.dense_weight(weight, 2)
    assert dense[:, :2, 3:].abs().max() == 0 == dense[:, 2:, :3].abs().max()
    grouped = oracle.products(pairs, x, weight, grad, 2)
    whole = oracle.products(pairs, x, dense, grad)
    assert torch.equal(grouped["out"], whole["out"])
    blocks = torch.cat([whole["grad_weight"][:, :2, :3], whole["grad_weight"][:, 2:, 3:]], 2)
    assert torch.equal(grouped["grad_weight"], blocks)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_oracle_agrees_with_the_builders(geometry: str) -> None:
    kernel = Kernel.of(5)
    sites = sites_of(geometry, CLOUD.points, CLOUD.grid_size)
    truth = oracle.triplets(sites, sites, kernel)
    built = sites.kernel_map(sites, kernel, resolve("auto"))
    check_triplets(row(), built, truth)
    truth[3] = truth[3][0][1:], truth[3][1][1:]
    with pytest.raises(CheckFailed):
        check_triplets(row(), built, truth)


def test_large_clouds_take_the_search_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = sites_of("native", CLOUD.points, CLOUD.grid_size)
    kernel = Kernel.of(3)
    all_pairs = oracle.triplets(sites, sites, kernel)
    monkeypatch.setattr(oracle, "EVERY_PAIR", 0)
    for few, many in zip(oracle.triplets(sites, sites, kernel), all_pairs, strict=True):
        assert set(zip(*map(torch.Tensor.tolist, few), strict=True)) == set(
            zip(*map(torch.Tensor.tolist, many), strict=True)
        )


def test_degraded_points_compute_what_voxels_do() -> None:
    kernel = Kernel.of(3)
    voxels, corners = (sites_of(g, CLOUD.points, CLOUD.grid_size) for g in ("voxel", "degraded"))
    for (a, b), (c, d) in zip(
        oracle.triplets(voxels, voxels, kernel),
        oracle.triplets(corners, corners, kernel),
        strict=True,
    ):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def test_slots_round_half_away_from_zero_and_clamp() -> None:
    offsets = torch.tensor([[0.5, -0.5, 0.0], [1.9, 0.49, -7.0]])
    found = oracle.slots(offsets, 1.0, Kernel.of(3)).tolist()
    assert found == [(2 * 3 + 0) * 3 + 1, (2 * 3 + 1) * 3 + 0]


def test_what_the_oracle_does_not_serve_is_refused() -> None:
    points = torch.rand(10, 3)
    for sites, kernel in (
        (point_set_of(points, grid_size=(0.1, 0.1, 0.2)), Kernel.of(3)),
        (point_set_of(points, grid_size=0.1), Kernel.of((3, 3, 1))),
        (point_set_of(points, torch.arange(10) % 2, grid_size=0.1), Kernel.of(3)),
    ):
        with pytest.raises(ValueError, match=r"one cloud|must be odd and cubic"):
            oracle.triplets(sites, sites, kernel)

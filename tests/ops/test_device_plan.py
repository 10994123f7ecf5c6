"""Plans of the networks by device kernels: equal to torch's, with one wait, in few launches.

Tests that need no GPU also run on small clouds through the emulator.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import pcnn
from benchmarks.maps import Reads
from benchmarks.measured import trace
from pcnn.dataflows.weight_stationary import Hybrid
from pcnn.geometry import KernelMap, VoxelGrid, layouts
from pcnn.geometry.tile_steps import table_of_steps
from pcnn.maps import SortedSearch, Windowed, ZDelta
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C, SparseResNet21
from pcnn.ops import Engine, Planner, device_plan, resolve
from tests.clouds import surface
from tests.maps import conftest
from tests.steps import gathered

device, reversed_blocks = conftest.device, conftest.reversed_blocks

MODELS: dict[str, Callable[..., nn.Module]] = {
    "minkunet42": partial(MinkUNet42, width=0.125),
    "sparse_resnet21": partial(SparseResNet21, width=0.25),
    "resunet": partial(ResUNetBN2C, in_channels=4, width=0.25),
    "resnet18": partial(ResNet18, width=0.125),
}


def spira(threshold: int, key_bits: int = 64) -> Engine:
    builder = ZDelta(key_bits=key_bits)
    return Engine(f"spira_{threshold}", builder, Hybrid(threshold))


def reading(*names: str) -> Engine:
    return Engine("reads", Windowed(), Reads(needs=names, needs_weight_grad=()))


STEPS = reading("table", "steps")
#: Networks and their engines.
PLANS = [
    *((model, engine) for model in MODELS for engine in (STEPS, resolve("auto"))),
    *(
        (model, spira(threshold))
        for model in ("minkunet42", "sparse_resnet21")
        for threshold in (0, 1, 3, 4)
    ),
]


def cells_on(device: torch.device, seed: int = 0, n: int = 20_000) -> Tensor:
    """``[P, 4]`` int32 (batch, x, y, z) in any order, with duplicates; always the same cells."""
    n = n if device.type == "cuda" else 80
    cells = torch.cat([(torch.arange(n) % 3)[:, None], surface(n)], 1).int()
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([cells, cells[: n // 2]])[torch.randperm(n + n // 2, generator=generator)].to(
        device
    )


def names_of(planner: Planner) -> list[str]:
    """Layouts of the maps of an engine: of a z-delta search those of its paper too."""
    names = {"table", "counts", "pairs"}
    if planner.engine.name.startswith("spira"):
        return sorted(names | {"half_pairs", *(f"hybrid:{t}" for t in (0, 1, 3, "usual"))})
    return sorted(names.union({"masks", "offsets", "steps"}, planner.on_voxels.names[False]))


def same(found: KernelMap, wanted: KernelMap, name: str) -> bool:
    if name == "steps":  # orders of rows differ
        return torch.equal(gathered(found), gathered(wanted))
    one, other = found.layout(name), wanted.layout(name)
    if name == "fitting_steps":
        sizes = wanted.n_out, wanted.volume
        return torch.equal(table_of_steps(one, *sizes).cpu(), table_of_steps(other, *sizes))
    if name == "blocks":  # the last says how many rows a block may hold
        one, other = one[:-1], other[:-1]
    return all(torch.equal(a.cpu().long(), b.long()) for a, b in zip(one, other, strict=True))


def check(planner: Planner, root: VoxelGrid, backward: bool) -> None:
    """Hold every level and map of a planned geometry against torch's on the host."""
    planned = [root]
    plain = [VoxelGrid(root.keys.cpu(), root.batch_size, root.bound)]
    for parent, direction, kernel in planner.recipe.levels:
        above, down = plain[parent], direction == "down"
        plain.append(above.strided(kernel) if down else above.generated(kernel))
        level = planned[parent].level(kernel, down)
        planned.append(level)
        assert torch.equal(level.keys.cpu(), plain[-1].keys)
        if level.inverse is not None:
            assert torch.equal(level.inverse.cpu(), plain[-1].inverse)
        assert level.tensor_stride == plain[-1].tensor_stride
    maps = zip(planner.recipe.maps, planner.on_voxels.wanted[backward], strict=True)
    for entry, wanted in maps:
        source, target = planned[entry.source], planned[entry.target]
        built = source.cached_map(target, entry.kernel)
        assert wanted
        assert built.edges.layouts.keys() >= set(wanted)
        truth = plain[entry.source].map_to(plain[entry.target], entry.kernel, SortedSearch())
        assert built.symmetric == truth.symmetric
        for name in names_of(planner):
            assert same(built, truth, name), (entry, name)
            assert same(built.transpose(), truth.transpose(), name), (entry, name, "transposed")


@pytest.fixture
def one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU one block holds all rows."""
    monkeypatch.setattr(layouts, "BLOCK_ROWS", 1 << 30)


@pytest.mark.usefixtures("one_block")
@pytest.mark.parametrize(("model", "engine"), PLANS)
def test_plans_equal_those_of_torch(device: torch.device, model: str, engine: Engine) -> None:
    planner = Planner(MODELS[model](engine=engine).to(device))
    for backward in (False, True):
        cells = cells_on(device)
        grid = planner.voxelize(cells, 3, backward=backward)
        same_cells(grid, cells, 3)
        check(planner, grid, backward)
        again = VoxelGrid(grid.keys.clone(), 3, grid.bound)
        check(planner, planner(again, backward), backward)


def same_cells(grid: VoxelGrid, cells: Tensor, clouds: int) -> None:
    wanted = pcnn.geometry.grid_of_cells(cells[:, 1:].cpu(), cells[:, 0].cpu(), clouds)
    assert torch.equal(grid.keys.cpu(), wanted.keys)
    assert grid.bound == wanted.bound
    assert torch.equal(grid.inverse.cpu(), wanted.inverse)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside another thread"])
def test_a_cloud_that_takes_more_passes_than_the_last_is_sorted_again(
    backward: bool, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = Planner(MODELS["minkunet42"](engine=STEPS))
    small = torch.cat([torch.zeros(50, 1), surface(50)], 1).int()
    wide = small.clone()
    wide[0, 1:] = torch.tensor([-90000, 100000, 70000])

    def read(report: Tensor) -> list[int]:
        if others:  # a larger cloud was planned there while this one was sorted
            for plan in planner.on_voxels._device_plans.values():
                plan.passes = device_plan.MAX_PASSES, device_plan.MAX_PASSES
        return report.tolist()

    monkeypatch.setattr(device_plan, "read_copy", read)
    for cells in (small, wide, small):
        # with backward, maps are searched before the host knows that the sort was cut short
        for plan in planner.on_voxels._device_plans.values():
            plan.passes = 1, 1
        grid = planner.voxelize(cells, backward=backward)
        same_cells(grid, cells, 1)
        check(planner, grid, backward)


@pytest.mark.gpu
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("start", ["cells", "sites"])
@pytest.mark.parametrize("n", [100_000, 800_000])
def test_a_plan_takes_one_wait_and_forty_launches(
    start: str, backward: bool, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # memory that is poisoned takes launches of its own
    there = torch.device("cuda")
    planner = Planner(MinkUNet42(width=0.125, engine=STEPS))
    cells = cells_on(there, n=n)
    grid = planner.voxelize(cells, 3)

    def call() -> VoxelGrid:
        if start == "cells":
            return planner.voxelize(cells, 3, backward=backward)
        return planner(VoxelGrid(grid.keys, 3, grid.bound), backward)

    call()  # compiles, and learns how many passes sorts take
    torch.cuda.synchronize()
    seen = trace(call, there)
    for name, microseconds in seen.timeline:
        print(f"{microseconds:8.1f} us {name[:90]}")
    print(f"{seen.launches} launches, {seen.busy_ms:.3f} ms, {seen.waits} waits")
    assert seen.waits <= 1
    assert seen.launches <= 40

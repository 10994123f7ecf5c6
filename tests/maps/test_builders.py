"""Promises of all map builders, compared with the oracle; one test a builder and setting."""

import itertools
from functools import cache

import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, VoxelGrid, grid_of_cells
from pcnn.geometry.kernel_slots import Triple
from pcnn.maps import HashTable, MapBuilder, ZDelta, conformance
from tests import oracle
from tests.clouds import surface, surface_grid
from tests.engines import BUILDERS, KERNEL_BUILDERS

Cell = tuple[int, ...]
Cells = tuple[Cell, ...]

#: Kernels that differ in parity, in their axes, in what they tile and in what they leave out.
KERNELS = (
    *conformance.KERNELS,
    Kernel.of((3, 1, 5)),
    Kernel.of((1, 1, 9)),
    Kernel.of(4, 3),
    Kernel.of((3, 2, 1), (3, 1, 2), (1, 2, 3), (0, 1, 0)),
)
FEW = (Kernel.of(3), Kernel.of(2, 2), Kernel.of(3, 2))

UNROLLED = (*FEW, Kernel.of(3, dilation=(1, 3, 2)), Kernel.of(2, dilation=2, padding=1))

#: Settings that no engine takes.
SETTINGS: list[MapBuilder] = [
    HashTable(search="grid", symmetry=False),
    HashTable(search="hash", simplified=False, symmetry=False),
    ZDelta(product="pairs", half=False),
]
EVERY = [*BUILDERS, *SETTINGS]
every_builder = pytest.mark.parametrize("builder", EVERY, ids=str)


@pytest.fixture(autouse=True)
def kernels(request: pytest.FixtureRequest) -> None:
    """Device kernels serve the CPU, for the builders made of them."""
    if request.node.callspec.params.get("builder") in [*KERNEL_BUILDERS, *SETTINGS]:
        request.getfixturevalue("emulated")


@cache  # every builder is asked for the same maps
def expected(source: Cells, target: Cells, kernel: Kernel, stride: Triple) -> list[Cell]:
    """(slot, output, input) in the promised order, by the definition."""
    relation = (kernel.size, kernel.stride, kernel.dilation, kernel.padding)
    return sorted((k, i, j) for i, j, k in oracle.triplets(source, target, *relation, stride))


def check(builder: MapBuilder, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
    built = builder.build(source, target, kernel)
    built.validate()
    columns = (built.slot_index, built.out_index, built.in_index)
    cells = (tuple(map(tuple, grid.coords.tolist())) for grid in (source, target))
    wanted = expected(*cells, kernel, source.tensor_stride)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == wanted
    assert (built.n_in, built.n_out, built.volume) == (source.rows, target.rows, kernel.volume)
    assert built.symmetric == (kernel.is_symmetric and source is target)
    plain = KernelMap.from_pairs(*built.layout("pairs"), source.rows, target.rows)
    for name in ("table", "masks", "counts"):
        (found,), (truth,) = built.layout(name), plain.layout(name)
        assert found.dtype == truth.dtype
        assert torch.equal(found, truth), name
    return built


@every_builder
def test_triplets_equal_the_oracles(builder: MapBuilder) -> None:
    small = surface_grid(33, batch_size=3)
    # kernels of known size are compiled one by one
    for kernel in UNROLLED if getattr(builder, "simplified", False) else KERNELS:
        check(builder, small, small.strided(kernel), kernel)
    for n, kernel in itertools.product((0, 1, 2, 300), FEW):
        grid = surface_grid(n, batch_size=3)
        check(builder, grid, grid.strided(kernel), kernel)


@every_builder
def test_triplets_of_deeper_levels_and_other_sites(builder: MapBuilder) -> None:
    grid = surface_grid(400, batch_size=2).strided(Kernel.of(2, (3, 2, 6)))
    for kernel in FEW if getattr(builder, "simplified", False) else (*FEW, Kernel.of(2, (1, 1, 2))):
        check(builder, grid, grid.strided(kernel), kernel)
    reached = surface_grid(200, batch_size=2, downsampling="reached")
    for kernel in FEW[1:]:
        check(builder, reached, reached.strided(kernel), kernel)
    one, other, empty = surface_grid(200, seed=3), surface_grid(150, seed=4), surface_grid(0)
    check(builder, one, other, Kernel.of(3))
    # given sites that lack the parents of some inputs
    check(builder, one, other.strided(Kernel.of(2, 2)), Kernel.of(2, 2))
    check(builder, empty, one, Kernel.of(3))
    check(builder, one, empty, Kernel.of(3))


@every_builder
def test_clouds_do_not_see_each_other_at_the_packing_limit(builder: MapBuilder) -> None:
    limit = 131071 - 1
    cells = surface(200) % 3 + torch.tensor([limit - 2, -limit, 0])
    batch = torch.arange(200) % 4
    grid = grid_of_cells(cells, batch, 4)
    check(builder, grid, grid, Kernel.of(3))
    assert int(grid.coords[:, 1].max()) == limit


@every_builder
def test_transposed_maps(builder: MapBuilder) -> None:
    grid = surface_grid(120, batch_size=2)
    for kernel in FEW:
        built = builder.build(grid, grid.strided(kernel), kernel)
        view = built.transpose()
        edges, turned = (
            zip(*(index.tolist() for index in columns), strict=True)
            for columns in (
                (built.slot_index, built.out_index, built.in_index),
                (view.slot_index, view.in_index, view.out_index),
            )
        )
        assert sorted(edges) == sorted(turned)
        (table,) = view.layout("table")
        columns, rows = (table.t() >= 0).nonzero(as_tuple=True)
        assert columns.tolist() == view.slot_index.tolist()
        assert rows.tolist() == view.out_index.tolist()
        assert table[rows, columns].tolist() == view.in_index.tolist()


@pytest.mark.parametrize(
    "builder", [ZDelta(key_bits=32), ZDelta(product="pairs", key_bits=32)], ids=str
)
def test_keys_of_32_bits(builder: MapBuilder, emulated: None) -> None:
    for n, kernel in itertools.product((0, 1, 33, 300), FEW):
        grid = surface_grid(n)
        check(builder, grid, grid.strided(kernel), kernel)

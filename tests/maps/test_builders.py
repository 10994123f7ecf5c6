from functools import cache

import pytest
import torch

from pcnn.geometry import Kernel, VoxelGrid, grid_of_cells
from pcnn.geometry.kernel import Triple
from pcnn.maps import MapBuilder, SortedSearch
from pcnn.maps.conformance import KERNELS
from tests import oracle
from tests.clouds import surface, surface_grid
from tests.engines import BUILDERS, KERNEL_BUILDERS

Cell = tuple[int, ...]
Cells = tuple[Cell, ...]


@pytest.fixture(autouse=True)
def kernels(request: pytest.FixtureRequest) -> None:
    """Device kernels serve the CPU, for the builders made of them."""
    if request.node.callspec.params.get("builder") in KERNEL_BUILDERS:
        request.getfixturevalue("emulated")


@cache  # every builder is asked for the same maps
def expected(source: Cells, target: Cells, kernel: Kernel, stride: Triple) -> list[Cell]:
    """Triplets in ascending order, by the definition."""
    relation = (kernel.size, kernel.stride, kernel.dilation, kernel.padding)
    return sorted(oracle.triplets(source, target, *relation, stride))


def check(builder: MapBuilder, source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> None:
    kernel_map = builder.build(source, target, kernel)
    kernel_map.validate()
    columns = (kernel_map.out_index, kernel_map.in_index, kernel_map.slot_index)
    got = list(zip(*(c.tolist() for c in columns), strict=True))
    cells = (tuple(map(tuple, grid.coords.tolist())) for grid in (source, target))
    assert sorted(got) == expected(*cells, kernel, source.tensor_stride)
    # the promised order: by slot, then output row
    assert got == sorted(got, key=lambda edge: (edge[2], edge[0]))
    assert (kernel_map.n_in, kernel_map.n_out) == (source.rows, target.rows)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.name)
@pytest.mark.parametrize("n", [0, 1, 2, 33, 700])
def test_triplets_equal_the_oracles(builder: MapBuilder, kernel: Kernel, n: int) -> None:
    grid = surface_grid(n, batch_size=3)
    check(builder, grid, grid.strided(kernel), kernel)


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.name)
def test_triplets_of_deeper_levels(builder: MapBuilder) -> None:
    grid = surface_grid(600, batch_size=2).strided(Kernel.of(2, 2))
    for kernel in (Kernel.of(3), Kernel.of(3, 2), Kernel.of(2, (1, 1, 2)), Kernel.of(2, 2)):
        check(builder, grid, grid.strided(kernel), kernel)


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.name)
@pytest.mark.parametrize("sites", ["reached", "given"])
def test_triplets_of_other_sites(builder: MapBuilder, sites: str) -> None:
    if sites == "reached":
        grid = surface_grid(300, batch_size=2, downsampling="reached")
        for kernel in (Kernel.of(3, 2), Kernel.of(2, 2)):
            check(builder, grid, grid.strided(kernel), kernel)
    else:
        grid, other = surface_grid(300, seed=3), surface_grid(200, seed=4)
        check(builder, grid, other, Kernel.of(3))
        # given sites that lack the parents of some inputs
        some = other.strided(Kernel.of(2, 2))
        check(builder, grid, some, Kernel.of(2, 2))


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.name)
def test_clouds_do_not_see_each_other_at_the_packing_limit(builder: MapBuilder) -> None:
    limit = 131071 - 1
    cells = surface(200) % 3 + torch.tensor([limit - 2, -limit, 0])
    batch = torch.arange(200) % 4
    grid = grid_of_cells(cells, batch, 4)
    if getattr(builder, "search", "") == "grid":
        with pytest.raises(ValueError, match="grid"):  # of cells, not of sites: too many here
            builder.build(grid, grid, Kernel.of(3))
        return
    check(builder, grid, grid, Kernel.of(3))
    assert int(grid.coords[:, 1].max()) == limit


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.name)
def test_submanifold_maps_know_their_symmetry(builder: MapBuilder) -> None:
    grid = surface_grid(300)
    kernel_map = builder.build(grid, grid, Kernel.of(3))
    assert kernel_map.symmetric
    forward = zip(
        kernel_map.out_index.tolist(),
        kernel_map.in_index.tolist(),
        kernel_map.slot_index.tolist(),
        strict=True,
    )
    edges = set(forward)
    assert {(j, i, 26 - k) for i, j, k in edges} == edges
    assert not builder.build(grid, grid, Kernel.of(2)).symmetric


@pytest.mark.slow
@pytest.mark.parametrize("builder", [SortedSearch()], ids=lambda b: b.name)
def test_a_hundred_thousand_sites(builder: MapBuilder) -> None:
    grid = surface_grid(100_000, batch_size=2)
    check(builder, grid, grid, Kernel.of(3))
    check(builder, grid, grid.strided(Kernel.of(2, 2)), Kernel.of(2, 2))

import itertools

import numpy as np
import pytest
import torch

from pcnn.dataflows import Reference
from pcnn.geometry import Kernel, PointSet, point_set_of, quantize
from pcnn.maps import SortedSearch
from pcnn.maps.cell_parents import CellParents, cell_parents
from pcnn.maps.radius import RadiusSearch
from pcnn.ops import convolution
from tests import oracle
from tests.clouds import batched, surface, triplets_of
from tests.maps.guarded import guarded

KERNELS = [
    Kernel.of(2, 2),
    Kernel.of(3, 3),
    Kernel.of((1, 1, 2), (1, 1, 2)),
    Kernel.of((2, 4, 2), (2, 4, 2)),
]


def brute_force(source: PointSet, target: PointSet, kernel: Kernel) -> list[tuple[int, int, int]]:
    """Every point in the coarse cell of every output: its place there, from its coordinates."""
    fine, steps = np.array(source.voxel_size), np.array(kernel.stride)
    found = []
    corners = source.corners.numpy()
    for i, (batch, *cell) in enumerate(target.cells.tolist()):
        low = corners[batch] + np.array(cell) * fine * steps
        places = np.floor((source.positions.numpy() - low) / fine).astype(int)
        inside = ((places >= 0) & (places < steps)).all(1) & (source.batch_index.numpy() == batch)
        for j in inside.nonzero()[0]:
            x, y, z = places[j]
            found.append((i, int(j), int((x * steps[1] + y) * steps[2] + z)))
    return sorted(found, key=lambda edge: (edge[2], edge[0], edge[1]))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel.size))
@pytest.mark.parametrize("n", [0, 1, 300])
def test_triplets_equal_brute_force(n: int, kernel: Kernel) -> None:
    points, batch = batched(n)
    source = point_set_of(points, batch, 3, (0.5, 0.25, 0.5))
    for _ in range(2):  # repeated cells, then one point each
        target = source.strided(kernel)
        built = source.map_to(target, kernel, CellParents())
        built.validate()
        assert triplets_of(built) == brute_force(source, target, kernel)
        assert triplets_of(RadiusSearch().build(source, target, kernel)) == triplets_of(built)
        assert (built.n_in, built.n_out, built.triplets) == (source.rows, target.rows, source.rows)
        assert built.one_per_slot == source.one_per_cell
        assert built.one_per_slot_transposed
        source = target


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel.size))
@pytest.mark.parametrize("n", [1, 700])
def test_device_kernels_find_the_same(
    n: int, kernel: Kernel, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, batch = batched(n)
    source = point_set_of(points, batch, 3, (0.5, 0.25, 0.5))
    levels = [source, source.strided(kernel)]
    levels.append(levels[1].strided(kernel))
    wanted = [cell_parents(*pair, kernel) for pair in itertools.pairwise(levels)]
    request.getfixturevalue("emulated")
    request.getfixturevalue("reversed_blocks")
    for pair, plain in zip(itertools.pairwise(levels), wanted, strict=True):
        with guarded(monkeypatch):
            built = cell_parents(*pair, kernel)
        assert built.one_per_slot == plain.one_per_slot
        assert built.one_per_slot_transposed
        names = ["pairs", "counts", "rows_csr"] + ["table"] * built.one_per_slot
        for view, other in ((built, plain), (built.transpose(), plain.transpose())):
            for name in names:
                for got, expected in zip(view.layout(name), other.layout(name), strict=True):
                    assert got.dtype == expected.dtype
                    assert torch.equal(got, expected)


@pytest.mark.parametrize("sites", ["nearest", "cell_origin"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel.size))
def test_the_map_is_that_of_voxels_at_integer_coordinates(kernel: Kernel, sites: str) -> None:
    cells = torch.unique(surface(800), dim=0).double()
    batch = torch.arange(len(cells)) % 2
    source, grid = (
        point_set_of(cells, batch, 2, downsampling=sites),
        quantize(cells, batch, voxel_size=1),
    )
    assert torch.equal(source.cells, grid.coords)
    for _ in range(2):
        target, coarse = source.strided(kernel), grid.strided(kernel)
        built = cell_parents(source, target, kernel)
        expected = SortedSearch().build(grid, coarse, kernel)
        for got, wanted in zip(built.layout("pairs"), expected.layout("pairs"), strict=True):
            assert torch.equal(got, wanted)
        for view, other in ((built, expected), (built.transpose(), expected.transpose())):
            assert torch.equal(view.layout("table")[0], other.layout("table")[0])
        source, grid = target, coarse


def test_convolution_and_upsampling_over_shared_slots() -> None:
    points, batch = batched(300)
    kernel = Kernel.of(2, 2)
    source = point_set_of(points, batch, 3, 0.8)
    built = source.map_to(source.strided(kernel), kernel, CellParents())
    assert not built.one_per_slot
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(source.rows, 4, dtype=torch.float64, generator=generator)
    weight = torch.randn(8, 4, 6, dtype=torch.float64, generator=generator)
    down = convolution(x, weight, built, Reference())
    expected = oracle.convolution(x.numpy(), weight.numpy(), set(triplets_of(built)), built.n_out)
    assert np.allclose(down.numpy(), expected)
    back = torch.randn(8, 6, 5, dtype=torch.float64, generator=generator)
    up = convolution(down, back, built.transpose(), Reference())
    turned = {(j, i, k) for i, j, k in triplets_of(built)}
    assert np.allclose(up.numpy(), oracle.convolution(expected, back.numpy(), turned, source.rows))
    # every fine point is reached, by its parent alone
    assert sorted(i for i, _, _ in turned) == list(range(source.rows))


def test_levels_between_are_passed_over() -> None:
    points, batch = batched(300)
    source = point_set_of(points, batch, 3, 0.5)
    far = source.strided(Kernel.of(2, 2)).strided(Kernel.of((1, 2, 3), (1, 2, 3)))
    kernel = Kernel.of((2, 4, 6), (2, 4, 6))
    built = source.map_to(far, kernel, CellParents())
    assert triplets_of(built) == brute_force(source, far, kernel)
    with pytest.raises(ValueError, match="by the kernel's stride"):
        cell_parents(source, far, Kernel.of(2, 2))

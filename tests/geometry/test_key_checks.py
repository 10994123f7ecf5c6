"""Geometries refuse keys that are none of theirs, and their caches stay with them."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import pcnn
from pcnn.geometry import Geometry, Kernel, PointSet, grid_of_cells
from pcnn.maps import SortedSearch
from pcnn.nn import Conv3d
from tests.clouds import surface, surface_grid
from tests.maps.native_points import scan

Copy = Callable[[Any], Any]
COPIES: dict[str, Copy] = {
    "replace": replace,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
}


def features(geometry: Geometry) -> pcnn.SparseTensor:
    values = torch.arange(3 * geometry.rows).float().sin().view(-1, 3)
    return pcnn.SparseTensor(values, geometry)


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("kind", ["voxels", "points"])
def test_no_copy_takes_the_caches_along(kind: str, make: Copy) -> None:
    geometry: Geometry = surface_grid(200) if kind == "voxels" else scan(200)
    net = pcnn.nn.Sequential(Conv3d(3, 4, 3), Conv3d(4, 4, 2, 2), Conv3d(4, 4, 3))
    wanted = net(features(geometry)).features
    assert geometry.cached_maps()
    assert geometry.levels()
    other = make(geometry)
    assert not other.cached_maps()
    assert not other.levels()
    net(features(other))
    assert next(iter(other.levels().values())) is not next(iter(geometry.levels().values()))
    assert torch.equal(net(features(other)).features, wanted)
    # nor does a copy of a tensor
    assert not copy.deepcopy(features(geometry)).geometry.cached_maps()


def test_a_grid_with_other_keys_has_maps_of_its_own() -> None:
    first, second = surface_grid(300, seed=1), surface_grid(300, seed=5)
    rows = min(first.rows, second.rows)
    first, second = (replace(g, keys=g.keys[:rows], inverse=None) for g in (first, second))
    net = pcnn.nn.Sequential(Conv3d(3, 4, 3), Conv3d(4, 4, 3, 2))
    net(features(first))
    moved = replace(first, keys=second.keys)
    found, wanted = (net(features(grid)).features for grid in (moved, second))
    assert torch.equal(found, wanted)
    points = scan(200)
    net(features(points))
    turned = replace(points, points=points.points.clone(), one_per_cell=False)
    assert not turned.cached_maps()


def test_an_edge_set_keeps_its_layouts_to_itself() -> None:
    grid = surface_grid(100)
    built = SortedSearch().build(grid, grid, Kernel.of(3))
    built.read(("pairs",), ())
    other = replace(built.edges, symmetric=False)
    assert other.layouts == built.edges.layouts
    assert not other.lists
    assert not other.uses
    other.layouts["table", False] = (torch.zeros(1),)
    assert not built.has("table")


def test_the_switch_looks_at_every_claim_on_every_device() -> None:
    grid, points = surface_grid(200, batch_size=2), scan(90)
    coarse = grid.strided(Kernel.of(2, 2))
    for sound in (grid, coarse, points, points.strided(Kernel.of(3, 2)), surface_grid(0)):
        replace(sound, check=True)
        sound.validate()
    claims: list[tuple[Geometry, dict[str, Any], str]] = [
        (grid, {"keys": grid.keys.flip(0)}, "unsorted"),
        (grid, {"bound": 1}, "but bound and box say -1..1"),
        (grid, {"box": ((0, 0, 0), (1, 1, 1))}, "along x, but bound and box say 0..1"),
        (grid, {"keys": grid.keys[:-1]}, r"inverse holds rows 0\.\."),
        (grid, {"inverse": torch.zeros(5)}, r"inverse must be \[P\] int64"),
        (grid, {"tensor_stride": (1, 2, 1)}, "no multiples of stride"),
        (points, {"keys": points.keys.flip(0)}, "unsorted"),
        (points, {"points": points.points + 0.05}, "90 of 90 points lie outside the cell"),
        (points, {"chosen": points.keys}, r"chosen holds rows \d+"),
        (points, {"inverse": points.inverse + 1}, r"inverse holds rows 1\.\.90"),
    ]
    for geometry, change, message in claims:
        # as on a device, where nothing waits
        unseen = replace(geometry, check=False, **change)
        with pytest.raises(ValueError, match=message):
            unseen.validate()
        with pytest.raises(ValueError, match=message):
            replace(geometry, check=True, **change)


def test_points_of_every_maker_lie_in_their_cells() -> None:
    for sites in ("nearest", "cell_origin"):
        for place in (0.0, 1e4, -3e6):
            near = scan(90, downsampling=sites)
            points = near.positions + place
            for thin in (None, 0.02):
                made = pcnn.geometry.point_set_of(
                    points, voxel_size=0.05, downsampling=sites, thin=thin
                )
                made.validate()
                made.strided(Kernel.of(3, 3)).strided(Kernel.of(2, 2)).validate()
                PointSet.collate([made, made]).validate()


def test_features_go_with_their_cells() -> None:
    cells, batch = surface(200, 3), torch.arange(200) % 2
    cells = torch.unique(cells, dim=0)
    order = torch.randperm(len(cells))
    cells, batch = cells[order], batch[: len(cells)]
    values = torch.randn(len(cells), 3)
    x = pcnn.from_coordinates(cells, values, batch)
    assert torch.equal(x.at_points(), values)
    assert not torch.equal(x.features, values)
    by_cell = {
        (b, *cell): row
        for b, cell, row in zip(batch.tolist(), cells.tolist(), values.tolist(), strict=True)
    }
    for cell, row in zip(x.geometry.coords.tolist(), x.features.tolist(), strict=True):
        assert by_cell[tuple(cell)] == row
    # rows of a cell given twice are reduced
    both = pcnn.from_coordinates(cells.repeat(2, 1), values.repeat(2, 1), reduce="sum")
    assert both.geometry.rows == len(cells)
    torch.testing.assert_close(both.at_points()[: len(cells)], 2 * values)
    with pytest.raises(ValueError, match="features must be"):
        pcnn.from_coordinates(cells, values[1:])


def test_a_map_of_other_sites_is_not_kept() -> None:
    grid, other = surface_grid(100), surface_grid(50)
    built = SortedSearch().build(other, other, Kernel.of(3))
    with pytest.raises(ValueError, match=r"from 33 to 33 rows is none of 27 slots"):
        grid.add_map(grid, Kernel.of(3), built)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.int64), r"cells must be \[P, 3\] \(x, y, z\), got \(3, 2\)"),
        (torch.zeros(3, dtype=torch.int64), r"cells must be \[P, 3\]"),
        (torch.zeros(3, 4, dtype=torch.int64), r"batch=cells\[:, 0\]"),
        (torch.tensor([[0.0, 1, 2], [0, 0.5, 0]]), "1 of 2 rows are fractional.* first is 1"),
        (torch.tensor([[float("nan"), 0, 0]]), "1 of 1 rows are fractional, NaN or infinite"),
        (torch.tensor([[0, -float("inf"), 0]]), "1 of 1 rows are fractional, NaN or infinite"),
        (torch.zeros(2, 3, dtype=torch.bool), "cells must hold whole numbers, got torch.bool"),
        (torch.zeros(2, 3, dtype=torch.complex64), "cells must hold whole numbers"),
        (torch.full((2, 3), 1 << 40), "packed key"),
        (torch.full((2, 3), 1e30), "packed key"),
    ],
)
def test_cells_that_are_none_are_refused(cells: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid_of_cells(cells)

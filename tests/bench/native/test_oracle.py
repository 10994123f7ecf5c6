from __future__ import annotations

import pytest
import torch

from pcnn.bench.native import oracle
from pcnn.bench.native.lines import GEOMETRIES, sites_of, tensor_on
from pcnn.bench.native.rooms import room
from pcnn.bench.verify import CheckFailed, Configuration, check_triplets
from pcnn.geometry import Kernel, point_set_of
from pcnn.ops.engine import resolve
from pcnn.ops.kernel_maps import map_between

CLOUD = room(0, 600, torch.device("cpu"))


def configuration(kernel: Kernel) -> Configuration:
    return Configuration("auto", CLOUD.name, "cpu", kernel)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("size", [3, 5])
def test_the_oracle_agrees_with_the_builders(geometry: str, size: int) -> None:
    kernel = Kernel.of(size)
    sites = sites_of(geometry, CLOUD.points, CLOUD.grid_size)
    truth = oracle.triplets(sites, sites, kernel)
    built = map_between(sites, sites, kernel, resolve("auto"))
    check_triplets(configuration(kernel), built, truth)
    truth[3] = truth[3][0][1:], truth[3][1][1:]
    with pytest.raises(CheckFailed):
        check_triplets(configuration(kernel), built, truth)


def test_large_clouds_take_the_search_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = sites_of("native", CLOUD.points, CLOUD.grid_size)
    kernel = Kernel.of(3)
    all_pairs = oracle.triplets(sites, sites, kernel)
    monkeypatch.setattr(oracle, "EVERY_PAIR", 0)
    for few, many in zip(oracle.triplets(sites, sites, kernel), all_pairs, strict=True):
        got, wanted = (torch.stack(pair)[:, torch.stack(pair)[0].argsort()] for pair in (few, many))
        assert got.shape == wanted.shape


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


def test_a_geometry_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="voxel, degraded, native"):
        tensor_on("mesh", CLOUD.points, CLOUD.points, 1.0, None)

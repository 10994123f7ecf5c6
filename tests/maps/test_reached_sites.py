from dataclasses import replace

import pytest
import torch

from pcnn.geometry import Kernel, KeyFormat, VoxelGrid, grid_of_cells
from pcnn.maps.reached_sites import reached_sites
from tests.clouds import surface_grid

KERNELS = [
    Kernel.of(2, 2),
    Kernel.of(3, 2),
    Kernel.of(3, 3, padding=1),
    Kernel.of(3, 2, padding=(0, 2, 4)),
    Kernel.of(4, 2, padding=1),
    Kernel.of(1, 2),
    Kernel.of(3, 2, dilation=(1, 3, 2)),
    Kernel.of(4, 6, dilation=4, padding=3),
    Kernel.of((5, 3, 2), (2, 3, 1)),
]

STEPS = [(True, True), (True, False), (False, False)]
steps = pytest.mark.parametrize(
    ("fused", "simplified"), STEPS, ids=["unrolled", "fused", "separate"]
)


def check(grid: VoxelGrid, kernel: Kernel, fused: bool, simplified: bool) -> VoxelGrid:
    sites = reached_sites(grid, kernel, fused=fused, simplified=simplified)
    expected = grid.strided(kernel)
    assert torch.equal(sites.keys, expected.keys)
    assert (sites.bound, sites.batch_size) == (expected.bound, expected.batch_size)
    assert (sites.tensor_stride, sites.downsampling) == (expected.tensor_stride, "reached")
    return sites


@steps
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_sites_equal_those_of_the_geometry(
    device: torch.device, kernel: Kernel, fused: bool, simplified: bool
) -> None:
    for n in (0, 1, 33, 600) if device.type == "cpu" else (100_000,):
        grid = surface_grid(n, batch_size=3, downsampling="reached").to(device)
        check(grid, kernel, fused, simplified)


@steps
def test_sites_of_deeper_levels(emulated: None, fused: bool, simplified: bool) -> None:
    grid = surface_grid(300, batch_size=2, downsampling="reached")
    for kernel in (Kernel.of(3, 2), Kernel.of(2, 3), Kernel.of(3, (1, 3, 2))):
        grid = check(grid, kernel, fused, simplified)


def test_sites_of_another_layout(emulated: None) -> None:
    layout = KeyFormat(3, (10, 12, 9))
    keys = layout.pack(surface_grid(200, batch_size=2).coords)
    grid = VoxelGrid(keys, 2, 20, downsampling="reached", key_format=layout)
    for fused, simplified in STEPS:
        check(grid, Kernel.of(3, 2), fused, simplified)


def test_sites_near_the_limit_of_the_packing(emulated: None) -> None:
    limit = 131071 - 1
    corners = torch.tensor([[b, x, y, 0] for b in (0, 1) for x in (-limit, limit) for y in (-5, 6)])
    layout = VoxelGrid(torch.zeros(0, dtype=torch.int64), 1, 0).key_format
    grid = VoxelGrid(layout.pack(corners).sort().values, 2, limit, downsampling="reached")
    for fused, simplified in STEPS:
        check(grid, Kernel.of(3, 2), fused, simplified)
        with pytest.raises(ValueError, match="reached sites"):
            reached_sites(grid, Kernel.of(7, 2), fused=fused, simplified=simplified)


@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        (Kernel.of(3), None),
        (Kernel.of(2, 1, 3), None),
        (Kernel.of(3, padding=0), (9, 8, 7)),
        (Kernel.of(3, 2, padding=1), (9, 8, 7)),
        (Kernel.of(4, (2, 3, 1), padding=(0, 2, 3)), (9, 8, 7)),
        (Kernel.of(9, 1, padding=0), (9, 8, 7)),  # no place along y
        (Kernel.of(2, 2), (1 << 20, 8, 7)),  # more than a key holds
    ],
    ids=str,
)
def test_sites_of_stride_one_and_in_a_volume(
    emulated: None, kernel: Kernel, shape: tuple[int, int, int] | None
) -> None:
    draw = torch.Generator().manual_seed(3)
    for n in (0, 120):
        cells = torch.rand(n, 3, generator=draw) * torch.tensor([9, 8, 7])
        batch = torch.randint(0, 2, (n,), generator=draw)
        grid = grid_of_cells(cells.floor(), batch, 2, "reached")
        grid = replace(grid, spatial_shape=shape)
        expected = grid.strided(kernel) if kernel.is_strided else grid.dilated(kernel)
        expected.validate()
        for fused, simplified in STEPS:
            sites = reached_sites(grid, kernel, fused=fused, simplified=simplified)
            assert torch.equal(sites.keys, expected.keys)
            assert sites.spatial_shape == expected.spatial_shape
            assert sites.extent == expected.extent


def test_too_many_candidates_are_refused(emulated: None) -> None:
    keys = torch.zeros(1, dtype=torch.int64).expand(1 << 29)
    with pytest.raises(ValueError, match="candidates"):
        reached_sites(VoxelGrid(keys, 1, 0, check=False), Kernel.of(3, 2))

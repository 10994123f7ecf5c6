"""Curves, windows and attention, against their definitions."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.geometry import Geometry, VoxelGrid
from pcnn.models.litept import WindowAttention, rotary_angles, rotated
from pcnn.ops.space_curves import hilbert, hilbert_table, z_order
from pcnn.ops.windows import ORDERS, Windows
from tests.clouds import surface_grid
from tests.tolerance import DENSE

TABLE = hilbert_table()


def test_curves_pass_every_cell_once() -> None:
    cells = torch.tensor(list(itertools.product(range(16), repeat=3)))
    straight = z_order(cells)
    assert torch.equal(
        straight,
        torch.arange(4096)
        .view(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)
        .permute(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11)
        .flatten(),
    )
    places = hilbert(straight, TABLE)
    assert torch.equal(places.sort().values, torch.arange(4096))
    steps = cells[places.argsort()].diff(dim=0).abs().sum(1)
    assert (steps == 1).all()  # to a neighbour, always
    far = torch.tensor([[65535, 0, 65535], [70000, 3, 0]])
    assert z_order(far).tolist() == [0o5 * (8**16 - 1) // 7, z_order(far.clamp(max=65535))[1]]


def clouds(*sizes: int) -> VoxelGrid:
    return VoxelGrid.collate([surface_grid(n, seed=n) for n in sizes])


@pytest.mark.parametrize("sizes", [(70, 0, 9, 1), (16,), (0, 33), (5, 4)])
def test_windows_hold_what_the_curve_says(sizes: tuple[int, ...]) -> None:
    grid, size = clouds(*sizes), 16
    windows = Windows.of(grid, size, TABLE)
    size = min(size, grid.rows)
    assert windows.rows.shape[2] == size
    for number, name in enumerate(ORDERS):
        for cloud in range(len(sizes)):
            rows = (grid.batch_index == cloud).nonzero()[:, 0]
            cells = grid.coords[rows, 1:].long()
            cells = cells - cells.amin(0) if len(cells) else cells
            x, y, z = cells.unbind(1)
            if name.endswith("transposed"):
                x, y = y, x
            codes = z_order(torch.stack([x, y, z], dim=1))
            codes = hilbert(codes, TABLE) if name.startswith("hilbert") else codes
            along = rows[codes.argsort()]
            for start in range(0, len(along), size):
                end = min(start + size, len(along))
                inside = along[max(0, end - size) : end]  # the last one begins earlier
                for row in along[start:end].tolist():
                    window, slot = divmod(int(windows.place[number, row]), size)
                    there = windows.rows[number, window][windows.there[window]]
                    assert torch.equal(there, inside), (name, cloud, row)
                    assert int(windows.rows[number, window, slot]) == row


def attended(module: WindowAttention, x: Tensor, windows: Windows, order: int) -> Tensor:
    """Every site by itself, with rotations written as complex numbers."""
    heads, size = module.heads, x.shape[1] // module.heads
    q, k, v = module.qkv(x).view(len(x), 3, heads, size).unbind(1)
    pairs = size // 6
    angle = windows.positions.double()[:, :, None] * 100.0 ** (-torch.arange(pairs) / pairs)
    turn = torch.polar(torch.ones(()).double(), angle)[:, None]  # [N, 1, 3, pairs]

    def as_complex(one: Tensor) -> Tensor:
        u, w = one.view(len(x), heads, 3, 2, pairs).unbind(3)
        return torch.complex(u, w) * turn

    q, k = as_complex(q), as_complex(k)
    out = torch.empty_like(v)
    for row in range(len(x)):
        window = int(windows.place[order, row]) // windows.rows.shape[2]
        keys = windows.rows[order, window][windows.there[window]]
        scores = (q[row, None] * k[keys].conj()).real.sum((2, 3)) * size**-0.5  # [keys, H]
        out[row] = torch.einsum("kh,khd->hd", scores.softmax(0), v[keys])
    return module.project(out.flatten(1))


@pytest.mark.parametrize("order", [0, 3])
def test_attention_is_that_of_every_site_by_itself(order: int) -> None:
    grid = clouds(40, 0, 7)
    windows = Windows.of(grid, 8, TABLE)
    module = WindowAttention(24, 2).double()
    x = torch.randn(grid.rows, 24, dtype=torch.float64, requires_grad=True)
    angles = rotary_angles(windows.positions.double(), 12)
    found = module(x, windows, angles, order)
    expected = attended(module, x, windows, order)
    torch.testing.assert_close(found, expected, rtol=DENSE, atol=DENSE)
    grads = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*grads, rtol=DENSE, atol=DENSE)


def test_rotations_tell_differences_of_places_alone() -> None:
    x = torch.randn(2, 1, 18, dtype=torch.float64)
    places = torch.tensor([[3.0, 1.0, 2.0], [5.0, 0.0, 9.0]], dtype=torch.float64)
    products = []
    for moved in (0.0, 17.0):
        q, k = rotated(x, rotary_angles(places + moved, 18))
        products.append((q * k).sum())
    torch.testing.assert_close(*products, rtol=DENSE, atol=DENSE)


def test_native_points_stand_where_they_are() -> None:
    points = torch.rand(50, 3).double() * 4 - 1
    x = pcnn.native_points(points, points, None, 0.5)
    geometry: Geometry = x.geometry
    found = Windows.of(geometry, 16, TABLE).positions
    expected = (x.features / 0.5 - (x.features / 0.5).floor().amin(0)).float()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)

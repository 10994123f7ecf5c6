"""Dense volumes and back, against a loop over sites and torch's convolution."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import pcnn
from pcnn.geometry import VoxelGrid
from pcnn.nn import Conv3d
from tests.clouds import surface_grid
from tests.tolerance import DENSE


def tensor(n: int = 60, stride: tuple[int, int, int] = (1, 1, 1)) -> pcnn.SparseTensor:
    """Sites around zero in clouds 0 and 2 of 3."""
    generator = torch.Generator().manual_seed(n)
    cells = torch.randint(-4, 5, (n, 3), generator=generator) * torch.tensor(stride)
    batch = torch.randint(0, 2, (n, 1), generator=generator) * 2
    features = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    coords = torch.cat([batch, cells], dim=1)
    return pcnn.from_coordinates(coords, features, tensor_stride=stride, batch_size=3)


def by_hand(x: pcnn.SparseTensor, shape: tuple[int, ...], low: tuple[int, ...]) -> Tensor:
    volume = torch.zeros(x.batch_size, x.channels, *shape, dtype=x.dtype)
    for (b, *site), row in zip(x.coords.tolist(), x.features, strict=True):
        place = [(c - o) // t for c, o, t in zip(site, low, x.tensor_stride, strict=True)]
        if all(0 <= p < s for p, s in zip(place, shape, strict=True)):
            volume[b, :, place[0], place[1], place[2]] = row
    return volume


@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("n", [1, 60])
def test_every_site_has_its_cell(n: int, stride: tuple[int, int, int]) -> None:
    x = tensor(n, stride)
    low = x.coords[:, 1:].amin(0).tolist()
    reach = ((x.coords[:, 1:].amax(0) - torch.tensor(low)) // torch.tensor(stride) + 1).tolist()
    assert torch.equal(x.dense(), by_hand(x, tuple(reach), tuple(low)))
    # a box that leaves sites out, and one with room
    for shape, corner in (((3, 2, 4), (-4, 0, -2)), ((20, 21, 22), (-20, -16, -12))):
        given = tuple(c * t for c, t in zip(corner, stride, strict=True))
        assert torch.equal(x.dense(shape, given), by_hand(x, shape, given))
    given = tuple(-2 * t for t in stride)
    assert torch.equal(x.dense(9, given), by_hand(x, (9, 9, 9), given))
    partly = x.dense(shape=4)
    assert torch.equal(partly, by_hand(x, (4, 4, 4), tuple(low)))


@pytest.mark.parametrize("stride", [(1, 1, 1), (4, 2, 1)])
def test_there_and_back(stride: tuple[int, int, int]) -> None:
    x = tensor(60, stride)
    low = x.coords[:, 1:].amin(0)
    y = pcnn.SparseTensor.from_dense(x.dense(), low.tolist(), stride)
    y.geometry.validate()  # type: ignore[attr-defined]
    assert torch.equal(y.geometry.keys, x.geometry.keys)
    assert torch.equal(y.features, x.features)
    assert (y.batch_size, y.tensor_stride) == (3, stride)
    sites = x.geometry
    # sites that the volume does not hold read 0
    box = (3, 2, 4), (0, -2 * stride[1], 0)
    z = pcnn.SparseTensor.from_dense(x.dense(*box), box[1], stride, geometry=sites)
    assert z.geometry is sites
    assert torch.equal(z.dense(*box), x.dense(*box))
    assert 0 < int((z.features != 0).any(1).sum()) < len(x)


def test_a_dense_volume_convolves_as_torch_does() -> None:
    conv, volume = Conv3d(2, 3, 3).double(), torch.randn(2, 2, 4, 5, 6, dtype=torch.float64)
    y = conv(pcnn.SparseTensor.from_dense(volume, (-2, -8, 3))).dense((4, 5, 6), (-2, -8, 3))
    weight = conv.weight.view(3, 3, 3, 2, 3).permute(4, 3, 0, 1, 2)
    expected = functional.conv3d(volume, weight, conv.bias, padding=1)
    torch.testing.assert_close(y, expected, rtol=DENSE, atol=DENSE)


def test_gradients_in_both_directions() -> None:
    x = tensor(12)
    sites = x.geometry

    def there(features: Tensor) -> Tensor:
        return x.replace(features).dense((5, 6, 7), -2)

    def back(volume: Tensor) -> Tensor:
        return pcnn.SparseTensor.from_dense(volume, -2, geometry=sites).features

    leaf = x.features.clone().requires_grad_()
    volume = torch.randn(3, 2, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    for act, given in ((there, leaf), (back, volume)):
        assert torch.autograd.gradcheck(act, given)
        assert torch.autograd.gradgradcheck(act, given)
    made = pcnn.SparseTensor.from_dense(volume)
    made.features.square().sum().backward()
    torch.testing.assert_close(volume.grad, 2 * volume.detach())


def test_empty_clouds_and_empty_volumes() -> None:
    x = pcnn.voxelize(torch.rand(0, 3), torch.rand(0, 2), voxel_size=1.0, batch_size=2)
    leaf = x.features.clone().requires_grad_()
    empty = x.replace(leaf)
    for volume, shape in ((empty.dense(), (0, 0, 0)), (empty.dense(2, 0), (2, 2, 2))):
        assert volume.shape == (2, 2, *shape)
        assert (volume == 0).all()
        volume.sum().backward()
        assert leaf.grad is not None
    back = pcnn.SparseTensor.from_dense(torch.zeros(2, 3, 4, 4, 4))
    assert (back.shape, back.batch_size) == ((0, 3), 2)
    nothing = pcnn.SparseTensor.from_dense(torch.zeros(1, 3, 0, 4, 4))
    assert nothing.shape == (0, 3)
    grid = surface_grid(5)
    read = pcnn.SparseTensor.from_dense(torch.zeros(1, 3, 0, 4, 4), geometry=grid)
    assert (read.features == 0).all()


def test_spare_rows_are_not_written() -> None:
    full = surface_grid(40)
    keys = torch.cat([full.keys, torch.full((5,), full.key_format.sentinel)])
    count = torch.tensor([full.rows], dtype=torch.int32)
    grid = VoxelGrid(keys, 1, full.bound, count=count)
    features = torch.randn(len(keys), 2)
    x, alone = pcnn.SparseTensor(features, grid), pcnn.SparseTensor(features[:-5], full)
    assert torch.equal(x.dense(), alone.dense())
    assert torch.equal(x.dense(30, -9), alone.dense(30, -9))
    back = pcnn.SparseTensor.from_dense(x.dense(60, -30), -30, geometry=grid)
    assert torch.equal(back.features[:-5], features[:-5])
    assert (back.features[-5:] == 0).all()


def test_made_in_inference_mode_it_trains() -> None:
    volume, conv = torch.randn(1, 2, 3, 3, 3), Conv3d(2, 2, 3)
    with torch.inference_mode():
        grid = pcnn.SparseTensor.from_dense(volume).geometry
    conv(pcnn.SparseTensor.from_dense(volume, geometry=grid)).features.sum().backward()
    assert conv.weight.grad is not None

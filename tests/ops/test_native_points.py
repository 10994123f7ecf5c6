import torch

import pcnn
from pcnn.geometry import Kernel
from pcnn.ops.prefetch import tensors_of
from tests.clouds import batched, cloud


def test_features_follow_their_points_and_gradients_come_back() -> None:
    points, batch = batched(200)
    features = torch.randn(200, 4, requires_grad=True)
    x = pcnn.native_points(points, features, batch, 0.5)
    assert isinstance(x.geometry, pcnn.PointSet)
    assert torch.equal(x.at_points(), features)
    assert x.channels == 4
    x.features.pow(2).sum().backward()
    assert torch.equal(features.grad, 2 * features.detach())


def test_thinned_points_stand_for_their_neighbours() -> None:
    points = torch.tensor([[0.1, 0.1, 0.1], [0.5, 0.5, 0.5], [0.9, 0.9, 0.9], [1.5, 0.5, 0.5]])
    x = pcnn.native_points(points, points, None, 3.0, thin=1.0)
    assert x.features.tolist() == [[0.5, 0.5, 0.5], [1.5, 0.5, 0.5]]
    assert x.at_points().tolist() == [[0.5] * 3] * 3 + [[1.5, 0.5, 0.5]]


def test_a_tensor_on_points_moves_whole() -> None:
    x = pcnn.native_points(cloud(20), torch.zeros(20, 2), voxel_size=0.5)
    assert x.to("cpu").geometry is x.geometry
    moved = x.geometry.to("meta")
    assert isinstance(moved, pcnn.PointSet)
    assert {t.device.type for t in (moved.points, moved.origins, moved.corners)} == {"meta"}
    assert x.replace(torch.ones(20, 5)).channels == 5
    level = x.geometry.strided(Kernel.of(2, 2))
    listed = {tensor.data_ptr() for tensor in tensors_of(x)}
    for geometry in (x.geometry, level):
        parts = (geometry.points, geometry.origins, geometry.keys, geometry.inverse)
        assert listed.issuperset(part.data_ptr() for part in parts)

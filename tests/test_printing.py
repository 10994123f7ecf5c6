"""Tensors, geometries and maps print one line, without reading a value of a tensor."""

from __future__ import annotations

import pydoc

import pytest
import torch

import pcnn
from pcnn.geometry import Kernel, KernelMap
from pcnn.nn.features import JoinedTensor

VOXELS = "VoxelGrid(rows=7, batch_size=1, tensor_stride=1, downsampling=floor, device=cpu)"


@pytest.fixture
def voxels() -> pcnn.SparseTensor:
    points = torch.arange(7.0).repeat_interleave(2)[:, None].expand(-1, 3)
    return pcnn.voxelize(points, torch.rand(14, 5), voxel_size=0.5)


def test_a_tensor_of_voxels(voxels: pcnn.SparseTensor) -> None:
    assert repr(voxels) == f"SparseTensor(features=[7, 5] float32, geometry={VOXELS})"


def test_axes_that_differ_are_told_apart(voxels: pcnn.SparseTensor) -> None:
    coarse = voxels.geometry.strided(Kernel.of((2, 2, 1), (2, 2, 1)))
    assert "tensor_stride=(2, 2, 1)" in repr(coarse)


def test_a_tensor_of_native_points() -> None:
    x = pcnn.native_points(torch.rand(100, 3), torch.rand(100, 2).half(), voxel_size=0.05)
    assert repr(x) == (
        "SparseTensor(features=[100, 2] float16, geometry=PointSet(rows=100, batch_size=1, "
        "voxel_size=0.05, tensor_stride=1, downsampling=nearest, device=cpu))"
    )


def test_a_joined_tensor_is_not_copied_to_be_printed(voxels: pcnn.SparseTensor) -> None:
    joined = JoinedTensor(voxels.features, voxels.features[:, :2], voxels.geometry)
    assert repr(joined) == f"JoinedTensor(features=[7, 7] float32, geometry={VOXELS})"
    assert joined.is_apart


def test_no_value_of_a_tensor_is_read(voxels: pcnn.SparseTensor) -> None:
    elsewhere = voxels.to("meta")  # its tensors have no values
    assert repr(elsewhere) == repr(voxels).replace("device=cpu", "device=meta")


def test_a_map_says_how_many_triplets_where_they_have_been_counted() -> None:
    table = torch.tensor([[0, -1, 1], [1, 0, -1]], dtype=torch.int32)
    found = KernelMap.from_table(table, n_in=3)
    assert repr(found) == "KernelMap(n_in=3, n_out=2, volume=3, layouts=[table])"
    assert repr(found.transpose()) == "KernelMap(n_in=2, n_out=3, volume=3, layouts=[])"
    assert found.triplets == 4
    assert "volume=3, triplets=4, layouts=[table" in repr(found)
    assert "triplets=4" in repr(found.transpose())


def test_the_package_lists_what_it_has() -> None:
    assert dir(pcnn) == sorted(dir(pcnn))
    assert {*pcnn.__all__, "losses", "datasets"} <= set(dir(pcnn))
    for name in dir(pcnn):
        assert getattr(pcnn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'voxelise'"):
        _ = pcnn.voxelise


def test_help_describes_what_the_package_has() -> None:
    text = pydoc.plain(pydoc.render_doc(pcnn))
    for name in ("class SparseTensor", "class VoxelGrid", "voxelize(", "register(", "tune("):
        assert name in text

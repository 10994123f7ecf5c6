"""Tensors and modules of `pcnn.compat.spconv`, and what may go wrong."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import pytest
import torch

import pcnn
import pcnn.compat.spconv.pytorch as spconv
from pcnn.compat import spconv as package
from pcnn.interop import SPCONV
from pcnn.nn.fused import Folded
from tests.compat.test_spconv_conv import SHAPES, tensor


def test_both_ways_to_import_it() -> None:
    assert package.SubMConv3d is spconv.SubMConv3d
    assert package.pytorch is spconv
    assert "SparseConv2d" in dir(package)
    assert package.__version__ == "2.3.8"
    with pytest.raises(AttributeError, match="SubMConv5d"):
        package.SubMConv5d  # noqa: B018


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_tensor_is_what_it_was_given_and_its_volume(axes: int) -> None:
    x = tensor(axes, 3)
    features, kept = torch.zeros(len(x.features), 2), x.indice_dict
    y = x.replace_feature(features)
    assert (y.features is features, y.indices is x.indices, y.indice_dict is kept) == (True,) * 3
    assert x.features.shape[1] == 3
    for added in (x, x.features):
        assert torch.equal((x + added).features, 2 * x.features)
    assert x.find_indice_pair(None) is None
    assert len(x.select_by_index(torch.tensor([3, 1])).indices) == 2
    with pytest.raises(AttributeError):
        x.features = features
    volume = x.dense()
    assert volume.shape == (2, 3, *SHAPES[axes])
    assert torch.equal(x.dense(channels_first=False), volume.movedim(1, -1))
    again = spconv.SparseConvTensor.from_dense(volume.detach().movedim(1, -1))
    assert (again.spatial_shape, again.batch_size) == (x.spatial_shape, 2)
    assert torch.equal(again.dense(), volume)
    gathered = volume.movedim(1, -1)[tuple(x.indices.long().unbind(1))]
    assert torch.equal(gathered, x.features)


def test_wrong_arguments() -> None:
    """They are `ValueError`, and `AssertionError` as in spconv."""
    x = tensor(2, 3)
    f, i = x.features, x.indices
    for given, message in [
        ((f, i.long(), [9, 7], 2), "int32"),
        ((f, i, [9, 7, 5], 2), "spatial_shape"),
        ((f, i, [9, 7], 0), "batch_size"),
        ((f[None], i, [9, 7], 2), "features"),
    ]:
        with pytest.raises(AssertionError, match=message):
            spconv.SparseConvTensor(*given)
    layer = spconv.SubMConv2d(3, 3, 3).double()
    for given, message in [
        ((f, i, [4, 7], 2), "column 1"),
        ((f, i, [9, 7], 1), "batch"),
        ((f[:1].repeat(2, 1), i[:1].repeat(2, 1), [9, 7], 2), "more than once"),
        ((f[:, :2], i, [9, 7], 2), "3 channels"),
    ]:
        with pytest.raises(ValueError, match=message):
            layer(spconv.SparseConvTensor(*given))
    with pytest.raises(ValueError, match="groups"):
        spconv.SubMConv2d(4, 4, 3, groups=2)
    with pytest.raises(ValueError, match="padding"):
        spconv.SparseConv2d(4, 4, 1, padding=1)
    with pytest.raises(ValueError, match="odd"):
        spconv.SubMConv2d(3, 4, 2).double()(x)
    far = spconv.SparseConvTensor(f[:1], torch.tensor([[0, 0, 6]]).int(), [9, 7], 1)
    with pytest.raises(ValueError, match="no site"):
        spconv.SparseConv2d(3, 4, 1, 4).double()(far)


def test_keys_belong_to_a_map() -> None:
    x = tensor(2, 3)
    first = spconv.SubMConv2d(3, 3, 3, indice_key="a").double()
    y = first(x)
    assert "a" not in x.indice_dict
    kept = y.find_indice_pair("a")
    assert kept is not None
    assert (kept.is_subm, kept.ksize, kept.indices is x.indices) == (True, [3, 3], True)
    assert first(y).find_indice_pair("a") is kept
    for layer in [
        spconv.SubMConv2d(3, 3, 5, indice_key="a"),
        spconv.SparseConv2d(3, 3, 3, 2, indice_key="a"),
        spconv.SparseMaxPool2d(2, indice_key="a"),
        spconv.SparseInverseConv2d(3, 3, 3, indice_key="a"),
        spconv.SparseInverseConv2d(3, 3, 3, indice_key="b"),
    ]:
        with pytest.raises(ValueError, match=f"indice_key '{layer.indice_key}'"):
            layer.double()(y)
    down = spconv.SparseConv2d(3, 3, 3, 2, indice_key="d").double()(y)
    with pytest.raises(ValueError, match="indice_key 'd'"):
        spconv.SparseInverseConv2d(3, 3, 2, indice_key="d").double()(down)
    again = spconv.SparseConv2d(3, 3, 3, 2).double()(y)
    assert again.indices is down.indices  # one kernel, one set of sites


def test_indices_that_change_are_looked_at_again() -> None:
    layer = spconv.SubMConv1d(1, 1, 3, bias=False).double()
    torch.nn.init.ones_(layer.weight)
    indices = torch.tensor([[0, 2], [0, 1]]).int()
    x = spconv.SparseConvTensor(torch.ones(2, 1).double(), indices, [9], 1)
    assert layer(x).features.flatten().tolist() == [2, 2]
    x.indices[:, 1] *= 3
    assert layer(x).features.flatten().tolist() == [1, 1]
    x.indices = torch.tensor([[0, 7], [0, 8]]).int()
    assert layer(x).features.flatten().tolist() == [2, 2]


def test_sums_over_different_sites() -> None:
    first, second = tensor(2, 3), tensor(2, 3, seed=4)
    total = spconv.functional.sparse_add(first, second)
    torch.testing.assert_close(total.dense(), first.dense() + second.dense())
    kept = spconv.SubMConv2d(3, 3, 3, indice_key="a").double()(first)
    part = kept.select_by_index(torch.arange(5))
    both = spconv.functional.sparse_add(part, kept)
    assert both.find_indice_pair("a") is not None
    assert both.indices is first.indices
    torch.testing.assert_close(both.dense(), part.dense() + kept.dense())
    with pytest.raises(ValueError, match="tensor 1"):
        spconv.functional.sparse_add(first, first.replace_feature(first.features[:, :2]))


def test_containers() -> None:
    layer, relu, x = spconv.SubMConv2d(3, 4, 3), torch.nn.ReLU(), tensor(2, 3)
    named = spconv.SparseSequential(OrderedDict(conv=layer, relu=relu), end=spconv.ToDense())
    assert (len(named), named[0], named[-2]) == (3, layer, relu)
    assert named.double()(x).shape == (2, 4, 9, 7)
    with pytest.raises(IndexError):
        named[3]
    named.add(torch.nn.Identity(), "more")
    assert list(named._modules) == ["conv", "relu", "end", "more"]
    sides = spconv.ConcatTable().add(spconv.Identity()).add(torch.nn.Identity())
    both = sides(x)
    assert both[0] is x
    assert torch.equal(spconv.AddTable()(both).features, 2 * x.features)
    assert spconv.JoinTable()(both).features.shape[1] == 6
    with pytest.raises(AssertionError, match="sparse_add"):
        spconv.JoinTable()([x, tensor(2, 3, many=9)])
    assert torch.equal(spconv.SparseReLU()(x).features, x.features.relu())
    assert spconv.modules.is_spconv_module(layer)
    assert not spconv.modules.is_spconv_module(relu)
    assert spconv.modules.is_sparse_conv(layer)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_a_convolution_its_norm_and_relu_are_one_call(
    bias: bool, relu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = [torch.nn.ReLU()] if relu else []
    net = spconv.SparseSequential(
        *(spconv.SubMConv2d(3, 4, 3, bias=bias), torch.nn.BatchNorm1d(4), *between),
        *(spconv.SparseConv2d(4, 5, 3, 2, 1, bias=bias), torch.nn.BatchNorm1d(5)),
    ).double()
    x, plain = tensor(2, 3), copy.deepcopy(net)
    wanted = x
    for module in plain:  # one after another
        on_tensor = isinstance(module, spconv.SparseModule)
        rows = wanted if on_tensor else module(wanted.features)
        wanted = module(wanted) if on_tensor else wanted.replace_feature(rows)
    assert torch.equal(net(x).features, wanted.features)
    for own, other in zip(net.buffers(), plain.buffers(), strict=True):
        assert torch.equal(own, other)
    calls: list[bool] = []
    applied = Folded.applied
    monkeypatch.setattr(Folded, "applied", lambda *a: calls.append(a[3]) or applied(*a))
    wanted = net.eval()(x).features.detach()
    assert not calls
    seen: list[object] = []
    with torch.no_grad():
        torch.testing.assert_close(net(x).features, wanted, atol=1e-10, rtol=1e-10)
        assert calls == [relu, False]
        handle = net[1].register_forward_hook(lambda *given: seen.append(given))
        torch.testing.assert_close(net(x).features, wanted, atol=1e-10, rtol=1e-10)
        assert len(seen) == 1
        handle.remove()
        net[1].running_mean.add_(1.0)
        moved = net(x).features
    assert len(seen) == 1
    torch.testing.assert_close(moved, net(x).features.detach(), atol=1e-10, rtol=1e-10)
    assert not torch.allclose(moved, wanted)


def test_checkpoints_have_the_layout_of_spconv() -> None:
    layer = spconv.SparseConv3d(3, 4, (1, 2, 3), record_voxel_count=True)
    assert layer.weight.shape == (4, 1, 2, 3, 3)
    torch.manual_seed(5)
    layer.reset_parameters()
    torch.manual_seed(5)  # one seed draws what it draws in spconv
    for own in (layer.weight, layer.bias):
        bound = (3 * 1 * 2 * 3) ** -0.5
        assert torch.equal(own, torch.empty(own.shape).uniform_(-bound, bound))
    state = spconv.SparseConv3d(3, 4, (1, 2, 3)).state_dict()
    assert set(state) == {"weight", "bias"}
    layer.load_state_dict({n: v.contiguous() for n, v in state.items()}, strict=False)
    assert torch.equal(layer.weight, state["weight"])
    ours = pcnn.nn.Conv3d(3, 4, (1, 2, 3))
    matrices = SPCONV.to_ours(layer.weight, ours.kernel)
    # the channels of the output lie innermost, also behind a cast, a copy and a step
    for made in (layer, copy.deepcopy(layer), layer.to(torch.float16).float()):
        view = made.weight.movedim(0, -1).flatten(0, 2)
        assert view.is_contiguous()
        torch.testing.assert_close(view, matrices, atol=1e-3, rtol=0)
    x = tensor(3, 3)
    x = x.replace_feature(x.features.float())
    out = layer(x)
    out.features.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.stride() == layer.weight.stride()
    assert int(layer.state_dict()["max_num_voxels_during_training"]) == len(out.features)


def test_they_can_be_sent() -> None:
    x = spconv.SubMConv3d(3, 3, 3, indice_key="a").double()(tensor(3, 3))
    x = x.replace_feature(x.features.detach())
    y = pickle.loads(pickle.dumps(x))
    assert torch.equal(y.indices, x.indices)
    assert (set(x.indice_dict), set(y.indice_dict)) == ({"a"}, set())
    layer = spconv.SubMConv3d(3, 3, 3, indice_key="a").double()
    again = pickle.loads(pickle.dumps(layer))
    assert torch.equal(again(y).features, layer(x).features)


def test_inference_mode_and_tensors_without_sites_come_first() -> None:
    layer, x = spconv.SubMConv2d(3, 3, 3).double(), tensor(2, 3)
    with torch.inference_mode():
        first = layer(x).features
    layer(x).features.sum().backward()
    assert torch.equal(first, layer(x).features)
    x = spconv.SparseConvTensor(torch.ones(0, 3), torch.zeros(0, 4).int(), [5, 6, 7], 2)
    net = spconv.SparseSequential(
        spconv.SubMConv3d(3, 4, 3), torch.nn.BatchNorm1d(4), spconv.SparseConv3d(4, 2, 3, 2, 1)
    )
    assert net(x).dense().shape == (2, 2, 3, 3, 4)

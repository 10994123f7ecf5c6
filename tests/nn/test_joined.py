import copy
import pickle

import torch
from torch import nn

import pcnn
from pcnn.nn import add, cat
from pcnn.nn.features import JoinedTensor
from tests.nn.fusing import joined, tensor


def test_a_joined_tensor_copies_at_the_first_request() -> None:
    x = joined()
    assert type(x) is JoinedTensor
    assert isinstance(x, pcnn.SparseTensor)
    assert (x.channels, x.is_apart) == (4, True)
    assert torch.equal(x.features, torch.cat([x.first, x.second], dim=1))
    assert x.features is x.features
    assert not x.is_apart
    assert torch.equal(x.replace(2 * x.features).features, 2 * x.features)


def test_a_joined_tensor_is_a_sparse_tensor() -> None:
    for act in (
        lambda x: x.to("cpu").features,
        lambda x: add(x, x).features / 2,
        lambda x: copy.deepcopy(x).features,
        lambda x: pickle.loads(pickle.dumps(x)).features,
        lambda x: cat(x, x).features[:, :4],
        lambda x: pcnn.nn.FeatureWise(nn.Identity())(x).features,
    ):
        x = joined()
        with torch.no_grad():
            assert torch.equal(act(x), torch.cat([x.first, x.second], dim=1))


def test_what_cannot_be_joined_is_copied() -> None:
    x = tensor()
    assert type(cat(x, x)) is pcnn.SparseTensor  # gradients are enabled
    with torch.no_grad():
        for parts in ((x,), (x, x, x), (x, x.replace(x.features.double()))):
            assert type(cat(*parts)) is pcnn.SparseTensor

from __future__ import annotations

import torch
from torch import nn

from pcnn.tasks.network_task import parameter_groups


def test_norms_and_biases_do_not_decay() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False))
    decayed, free = parameter_groups(net, decay_norms_and_biases=False)
    assert [p.ndim for p in decayed["params"]] == [2, 2]
    assert [p.ndim for p in free["params"]] == [1, 1, 1]
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    before = [p.detach().clone() for p in net.parameters()]
    torch.optim.SGD([decayed, free], lr=1.0, weight_decay=0.5).step()
    for old, new in zip(before, net.parameters(), strict=True):
        assert torch.equal(new, old * (0.5 if old.ndim == 2 else 1.0))


def test_one_group_and_frozen_parameters() -> None:
    net = nn.Linear(3, 4)
    net.bias.requires_grad_(False)
    (group,) = parameter_groups(net)
    assert group["params"] == [net.weight]
    assert "weight_decay" not in group
    (only,) = parameter_groups(net, decay_norms_and_biases=False)
    assert only["params"] == [net.weight]

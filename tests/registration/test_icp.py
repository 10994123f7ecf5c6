"""When ICP stops."""

import torch

from pcnn.registration.icp import icp


def test_clouds_that_lie_on_each_other_settle_at_once() -> None:
    points = torch.rand(300, 3)
    found = icp(points, points, torch.eye(4), 0.1)
    assert (found.fitness, found.rmse) == (1, 0)
    assert found.iterations == 1

"""Test-time augmentation: what the views are, and that summing them is what it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from pcnn.tasks.views import EvaluationViews, View, summed_probabilities


def test_a_view_turns_then_scales_then_mirrors() -> None:
    points = torch.tensor([[1.0, 2.0, 3.0]])
    assert View()(points) is points
    assert View(angle=360.0)(points) is points
    torch.testing.assert_close(View(angle=90.0)(points), torch.tensor([[-2.0, 1.0, 3.0]]))
    torch.testing.assert_close(View(scale=0.5)(points), points * 0.5)
    turned = View(angle=90.0, scale=2.0, flip="xy")(points)
    torch.testing.assert_close(turned, torch.tensor([[4.0, -2.0, 6.0]]))
    assert View(flip="y")(points).tolist() == [[1.0, -2.0, 3.0]]


class Batch:
    """Four points; a row of the input is a point, in reversed order, its logits are its place."""

    points = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0], [1.0, 1.0, 1.0], [5.0, 0.0, -5.0]])

    def placed(self, points: Tensor) -> Any:
        inverse = torch.arange(len(points)).flip(0)
        return SimpleNamespace(features=points[inverse], geometry=SimpleNamespace(inverse=inverse))


def logits_of(tensor: Any) -> Tensor:
    features: Tensor = tensor.features
    return features


def test_views_add_to_the_points_they_hold() -> None:
    total = summed_probabilities(logits_of, Batch(), EvaluationViews(scales=[1.0, 2.0]))
    parts = [(scale * Batch.points).double().softmax(1) for scale in (1, 2)]
    torch.testing.assert_close(total, parts[0] + parts[1])


def test_one_identity_view_decides_as_the_logits_do_however_close_they_are() -> None:
    close = torch.tensor([[30.0, 30.0 + 2e-6], [0.0, -100.0]])
    batch = SimpleNamespace(
        points=torch.zeros(2, 3),
        placed=lambda points: SimpleNamespace(
            features=close, geometry=SimpleNamespace(inverse=torch.arange(2))
        ),
    )
    total = summed_probabilities(logits_of, batch, EvaluationViews())
    assert total.argmax(1).tolist() == close.argmax(1).tolist() == [1, 0]

"""Gradients in memory that every step writes, and on memory of their own."""

import torch
from torch import Tensor, nn

from pcnn.graphs.own_steps import ALIGNED, Gradients


def parameters() -> list[nn.Parameter]:
    shapes, dtypes = [(3, 5), (7,), (), (65, 3)], [torch.float32, torch.float64]
    return [nn.Parameter(torch.ones(s, dtype=dtypes[n % 2])) for n, s in enumerate(shapes)]


def found(learning: list[nn.Parameter], value: float) -> list[Tensor | None]:
    return [None if n == 1 else torch.full_like(p, value) for n, p in enumerate(learning)]


def test_pieces_hold_the_gradients_and_zeros() -> None:
    learning = parameters()
    gradients = Gradients(learning)
    for piece in gradients.pieces:
        piece.fill_(torch.nan)
    for value in (2.0, 3.0):
        wanted = found(learning, value)
        gradients.write(wanted)
        for in_place in (True, False):
            views = gradients.views(in_place)
            for view, one, parameter in zip(views, wanted, learning, strict=True):
                assert view.shape == parameter.shape
                assert torch.equal(view, torch.zeros_like(view) if one is None else one)
        total = sum(float(piece.sum()) for piece in gradients.pieces)
        assert total == value * sum(one.numel() for one in wanted if one is not None)
    for view in gradients.views(True):
        assert view.data_ptr() % ALIGNED == 0


def test_gradients_that_are_kept_leave_before_the_next_step() -> None:
    learning = parameters()
    gradients = Gradients(learning)
    gradients.write(found(learning, 2.0))
    own, others = gradients.views(True), gradients.views(False)
    for parameter, one, other in zip(learning[:3], own, others, strict=False):
        parameter.grad = one if parameter.ndim else other
    gradients.let_go()
    assert all(
        p.grad.data_ptr() != one.data_ptr() for p, one in zip(learning[:3], own, strict=False)
    )
    assert learning[2].grad is others[2]
    gradients.write(found(learning, 5.0))
    assert float(learning[0].grad.sum()) == 30
    assert learning[3].grad is None

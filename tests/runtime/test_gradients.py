from __future__ import annotations

import torch
from torch import nn

from pcnn.runtime.gradients import ALIGNED, Gradients


def found(learning: list[nn.Parameter], value: float) -> list[torch.Tensor | None]:
    """Gradients of one value; the loss does not depend on the last parameter."""
    return [*(torch.full_like(p, value) for p in learning[:-1]), None]


def parameters() -> list[nn.Parameter]:
    sizes = {(2, 3): torch.float32, (3,): torch.float16, (7,): torch.float32, (2,): torch.float32}
    return [nn.Parameter(torch.zeros(size, dtype=dtype)) for size, dtype in sizes.items()]


def test_gradients_of_a_step_lie_in_the_parameters_without_a_copy() -> None:
    learning = parameters()
    gradients = Gradients(learning)
    gradients.write(found(learning, 2.0))
    pieces = gradients.hand_over(sums=False)
    assert [piece.dtype for piece in pieces] == [torch.float32, torch.float16]
    assert learning[3].grad is None
    for parameter in learning[:3]:
        assert parameter.grad is not None
        assert (parameter.grad == 2).all()
        assert parameter.grad.shape == parameter.shape
    assert learning[2].grad is not None
    assert learning[2].grad.data_ptr() == pieces[0].data_ptr() + 4 * ALIGNED
    # what changes all gradients may change the pieces
    pieces[0] *= 3
    assert (learning[0].grad == 6).all()
    gradients.release()
    assert learning[0].grad is None


def test_gradients_of_several_steps_add_up() -> None:
    learning = parameters()
    gradients = Gradients(learning)
    for _ in range(2):  # the second time in memory that is there
        for parameter in learning:
            parameter.grad = None
        for step in range(3):
            gradients.release()
            gradients.write(found(learning, 1.0 + step))
            pieces = gradients.hand_over(sums=True)
        assert learning[0].grad is not None
        assert (learning[0].grad == 6).all()
        assert learning[0].grad.data_ptr() == pieces[0].data_ptr()
        assert len(pieces) == 2


def test_gradients_of_other_origin_are_added_to() -> None:
    learning = parameters()
    gradients = Gradients(learning)
    learning[0].grad = torch.ones(2, 3)
    gradients.write(found(learning, 1.0))
    held = gradients.hand_over(sums=False)
    assert len(held) == 3
    assert (held[0] == 2).all()
    assert learning[2].grad is held[2]
    assert (held[2] == 1).all()

from __future__ import annotations

import torch
from torch import nn

from pcnn.graphs.gradients import ALIGNED, Gradients


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


def test_clipping_works_on_the_pieces_and_a_norm_that_is_no_number_leaves_nothing_behind() -> None:
    learning = [nn.Parameter(torch.zeros(size)) for size in ((2, 3), (7,), (2,))]
    optimizer, gradients = torch.optim.SGD(learning), Gradients(learning)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(1))
    for value, norm in ((torch.nan, torch.nan), (8.0, 2 * 13**0.5)):
        gradients.release()
        gradients.write(found(learning, value))
        (piece,) = gradients.hand_over(sums=False)
        with gradients.in_pieces(optimizer):
            scaler.unscale_(optimizer)
            (group,) = optimizer.param_groups
            seen = torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
        assert len(group["params"]) == 1
        torch.testing.assert_close(seen, torch.tensor(norm), equal_nan=True)
        scaler.step(optimizer)  # left out where a gradient is no number
        scaler.update(4.0)
    torch.testing.assert_close(piece.norm(), torch.tensor(1.0))
    moved = torch.cat([one.detach().flatten() for one in learning])
    torch.testing.assert_close(moved.norm(), torch.tensor(1e-3))
    (group,) = optimizer.param_groups
    assert all(one is own for one, own in zip(group["params"], learning, strict=True))
    with gradients.in_pieces(torch.optim.SGD(learning[:1])) as nothing:  # has others
        assert nothing is None

"""Lovasz-softmax: a surrogate that optimises IoU itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def lovasz_softmax(logits: Tensor, target: Tensor, ignore_index: int = 255) -> Tensor:
    """Mean Lovasz-softmax loss over the classes present in the target.

    With ``m_i(c) = 1 - p_i(c)`` where point i is of class c and ``p_i(c)`` elsewhere (Eq. 10),
    ``L = mean_c <m_sorted(c), g(c)>`` (Eq. 11) with the gradient g of `jaccard_gradient`, the mean
    over classes with at least one labelled point. The batch is one set, as in the paper's default.

    Args:
        logits: [N, C] floating point; N may be 0. Half precision is computed in float32.
        target: [N] int64 class ids or `ignore_index`.
        ignore_index: label of rows that do not count.

    Returns:
        Scalar in [0, 1]; 0 with gradient 0 when no row is labelled.

    Source: Berman, Triki, Blaschko, "The Lovasz-Softmax loss", CVPR 2018.
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if len(logits) == 0:
        return logits.sum()  # 0, and still attached to the graph
    loss: Tensor = _Lovasz.apply(logits, target, ignore_index)  # type: ignore[no-untyped-call]
    return loss


class _Lovasz(torch.autograd.Function):
    """With a gradient of its own, of two launches where autograd takes ten."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
        probabilities = logits.softmax(1)  # [N, C]
        classes = torch.arange(logits.shape[1], device=logits.device)
        foreground = target[:, None] == classes  # [N, C], false for ignored rows
        errors = probabilities.sub(foreground.to(logits.dtype)).abs_()
        gradient = jaccard_gradient(errors, foreground, target != ignore_index)
        ctx.save_for_backward(probabilities, torch.where(foreground, -gradient, gradient))
        return (errors * gradient).sum()

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        probabilities, slope = ctx.saved_tensors
        found = torch._softmax_backward_data(grad * slope, probabilities, 1, slope.dtype)
        return found, None, None


def jaccard_gradient(errors: Tensor, foreground: Tensor, labelled: Tensor) -> Tensor:
    """Gradient of the mean over classes of the Lovasz extension of the Jaccard loss.

    The Jaccard loss of a set S of mistaken points is ``1 - |G minus S| / |G or S|`` with G the true
    points of the class. Adding points in order of falling error, that of the k-th point is the
    growth ``J_k - J_{k-1}`` of that loss (Eq. 8, 9). With ``I_k = |G minus S_k|``, and
    ``U_k = |G or S_k| = I_k + k``, it is ``1 / U_k`` for a point of G and ``I_k / (U_k (U_k - 1))``
    for another one: no difference of nearly equal numbers.

    All classes are sorted at once, by whole numbers of 31 bits: class, error, whether the point is
    of the class. So errors are told apart down to ``2^-(30 - log2 C)`` (3e-8 with 20 classes); the
    order of closer ones moves the loss by no more than that.
    """
    rows, classes = errors.shape
    bits = 30 - (classes - 1).bit_length()  # of an error
    if bits < 10:
        raise ValueError(f"the Lovasz loss takes up to {2**20} classes, got {classes}")
    top = 2**bits - 1
    # labelled points count 1 to top, and ignored ones 0, behind all that is labelled: there the
    # loss of a class with points has reached 1 and grows no more
    level = (errors * (top - 1)).to(torch.int32).add_(1).clamp_(max=top) * labelled[:, None]
    step, last = 2 ** (bits + 1), 2 * top  # from one class to the next; the last key of a class
    ends = last + (classes - 1) * step + 1
    first = torch.arange(last, ends, step, dtype=torch.int32, device=errors.device)
    keys = first.sub(level, alpha=2).add_(foreground)  # [N, C]
    keys, order = keys.view(-1).sort()  # N of every class
    hits = keys.bitwise_and_(1).view(classes, rows)  # [C, N]
    # one scan over all classes, as torch scans one long row many times faster than several
    seen = hits.view(-1).cumsum(0, dtype=torch.int32).view(classes, rows)
    end = seen[:, -1:]  # [C, 1] true points of this class and those before
    intersection = (end - seen).to(errors.dtype)
    union = intersection + torch.arange(1, rows + 1, device=errors.device)
    growth = torch.where(hits > 0, 1 / union, intersection / (union - 1).clamp_(min=1).mul_(union))
    growth /= hits.amax(1).sum().clamp(min=1)  # classes that are there
    return torch.empty_like(growth).view(-1).scatter_(0, order, growth.view(-1)).view(rows, classes)


class LovaszSoftmax(nn.Module):
    """`lovasz_softmax` as a module.

    Args:
        ignore_index: label of rows that do not count.
    """

    def __init__(self, ignore_index: int = 255) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits [N, C] against class ids [N], a scalar."""
        return lovasz_softmax(logits, target, self.ignore_index)

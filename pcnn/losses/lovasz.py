"""Lovasz-softmax: a surrogate that optimises IoU itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def jaccard_gradient(foreground: Tensor) -> Tensor:
    """Gradient of the Lovasz extension of the Jaccard loss, for errors already sorted.

    The Jaccard loss of a set S of mistaken points is ``1 - |G minus S| / |G or S|`` with G the true
    points of the class. Adding points in order of falling error, the k-th component is the growth
    ``J_k - J_{k-1}`` of that loss.

    Args:
        foreground: [P, C] floating point, 1 where the point belongs to the class, else 0, each
            column sorted by falling error of its class.

    Returns:
        [P, C] same dtype.

    Source: Berman, Triki, Blaschko, "The Lovasz-Softmax loss", CVPR 2018, Eq. (8), (9).
    """
    size = foreground.sum(0, keepdim=True)  # [1, C] = |G|
    intersection = size - foreground.cumsum(0)
    union = size + (1 - foreground).cumsum(0)
    # a class without points has union 0 only where it also has no background before it
    jaccard = 1 - intersection / union.clamp(min=1)
    return torch.diff(jaccard, dim=0, prepend=torch.zeros_like(jaccard[:1]))


def lovasz_softmax(logits: Tensor, target: Tensor, ignore_index: int = 255) -> Tensor:
    """Mean Lovasz-softmax loss over the classes present in the target.

    With ``m_i(c) = 1 - p_i(c)`` where point i is of class c and ``p_i(c)`` elsewhere (Eq. 10),
    ``L = mean_c <m_sorted(c), g(c)>`` (Eq. 11) with the gradient of `jaccard_gradient`, the mean
    over classes with at least one labelled point. The batch is one set, as in the paper's default.

    Args:
        logits: [N, C] floating point; N may be 0. Half precision is computed in float32.
        target: [N] int64 class ids or `ignore_index`.
        ignore_index: label of rows that do not count.

    Returns:
        Scalar in [0, 1]; 0 with gradient 0 when no row is labelled.
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if len(logits) == 0:
        return logits.sum()  # 0, and still attached to the graph
    probabilities = logits.softmax(1)  # [N, C]
    labelled = (target != ignore_index)[:, None]  # [N, 1]
    classes = torch.arange(logits.shape[1], device=logits.device)
    foreground = (target[:, None] == classes).to(logits.dtype)  # [N, C], 0 for ignored rows
    errors = (foreground - probabilities).abs()
    # ignored rows sort behind every labelled one, where the Jaccard loss of a present class has
    # reached 1 and grows no more; dropping them by a mask would make the host wait for the device
    ranking = torch.where(labelled, errors.detach(), -1.0)
    order = torch.sort(ranking, dim=0, descending=True, stable=True).indices  # [N, C]
    gradient = jaccard_gradient(foreground.gather(0, order))
    per_class = ((errors * labelled).gather(0, order) * gradient).sum(0)  # [C]
    here = foreground.sum(0) > 0
    return (per_class * here).sum() / here.sum().clamp(min=1)


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

"""Losses.

Of segmentation: ``loss(logits [N, C], target [N]) -> scalar``.
Of registration: ``loss(source features [N, C], target features [M, C], batch) -> scalar``.
"""

from pcnn.losses.cross_entropy import CrossEntropy, WeightedSum, inverse_log_frequency
from pcnn.losses.descriptors import HardestContrastive, InfoNCE
from pcnn.losses.lovasz import LovaszSoftmax, lovasz_softmax

__all__ = [
    "CrossEntropy",
    "HardestContrastive",
    "InfoNCE",
    "LovaszSoftmax",
    "WeightedSum",
    "inverse_log_frequency",
    "lovasz_softmax",
]

"""Losses of segmentation: ``loss(logits [N, C], target [N]) -> scalar``."""

from pcnn.losses.class_weights import inverse_log_frequency
from pcnn.losses.combined import WeightedSum
from pcnn.losses.cross_entropy import CrossEntropy
from pcnn.losses.lovasz import LovaszSoftmax, lovasz_softmax

__all__ = [
    "CrossEntropy",
    "LovaszSoftmax",
    "WeightedSum",
    "inverse_log_frequency",
    "lovasz_softmax",
]

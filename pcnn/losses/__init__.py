"""Losses.

Of segmentation: ``loss(logits [N, C], target [N]) -> scalar``.
Of registration: ``loss(source features [N, C], target features [M, C], batch) -> scalar``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcnn.losses.circle import Circle
    from pcnn.losses.cross_entropy import CrossEntropy, WeightedSum, inverse_log_frequency
    from pcnn.losses.hardest_contrastive import HardestContrastive
    from pcnn.losses.info_nce import InfoNCE
    from pcnn.losses.lovasz import LovaszSoftmax, lovasz_softmax
    from pcnn.losses.overlap import OverlapLoss

__all__ = [
    "Circle",
    "CrossEntropy",
    "HardestContrastive",
    "InfoNCE",
    "LovaszSoftmax",
    "OverlapLoss",
    "WeightedSum",
    "inverse_log_frequency",
    "lovasz_softmax",
]

# imported when they are asked for: a segmentation needs none of descriptors
_HOMES = {
    "Circle": "circle",
    "CrossEntropy": "cross_entropy",
    "HardestContrastive": "hardest_contrastive",
    "InfoNCE": "info_nce",
    "LovaszSoftmax": "lovasz",
    "OverlapLoss": "overlap",
    "WeightedSum": "cross_entropy",
    "inverse_log_frequency": "cross_entropy",
    "lovasz_softmax": "lovasz",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

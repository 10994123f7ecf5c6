"""Losses.

Of segmentation: ``loss(logits [N, C], target [N]) -> scalar``.
Of registration: ``loss(source features [N, C], target features [M, C], batch) -> scalar``.
"""

from typing import TYPE_CHECKING

from pcnn.late import late

if TYPE_CHECKING:
    from pcnn.losses.cross_entropy import CrossEntropy, WeightedSum, inverse_log_frequency
    from pcnn.losses.hardest_contrastive import HardestContrastive
    from pcnn.losses.info_nce import InfoNCE
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

# a segmentation needs none of descriptors
__getattr__ = late(
    __name__,
    {
        ".cross_entropy": ("CrossEntropy", "WeightedSum", "inverse_log_frequency"),
        ".hardest_contrastive": ("HardestContrastive",),
        ".info_nce": ("InfoNCE",),
        ".lovasz": ("LovaszSoftmax", "lovasz_softmax"),
    },
)

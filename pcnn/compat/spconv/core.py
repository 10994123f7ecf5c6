"""Names of spconv's algorithms: layers take and keep them, the engine decides."""

from enum import Enum


class ConvAlgo(Enum):
    """Algorithms of spconv."""

    Native = 0
    MaskImplicitGemm = 1
    MaskSplitImplicitGemm = 2

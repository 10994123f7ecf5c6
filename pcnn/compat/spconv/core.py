"""Names of spconv's algorithms: layers take and keep them, the engine decides."""

from enum import Enum


class ConvAlgo(Enum):
    """Algorithms of spconv."""

    Native = 0
    MaskImplicitGemm = 1
    MaskSplitImplicitGemm = 2


class AlgoHint(Enum):
    """Hints of spconv about what a layer will be used for."""

    NoHint = 0
    Fowrard = 1
    BackwardInput = 2
    BackwardWeight = 4

"""Weights of other packages: their layouts into ours and back, for any module tree."""

from pcnn.interop.layouts import (
    FLEXGEMM,
    LAYOUTS,
    MINKOWSKI,
    POINTELLIGENCE,
    SPCONV,
    SPCONV_RSCK,
    SPCONV_RSKC,
    TORCHSPARSE,
    WARPCONVNET,
    ChannelsAround,
    SlotsFirst,
    WeightLayout,
)
from pcnn.interop.state import load_state, state_of

__all__ = [
    "FLEXGEMM",
    "LAYOUTS",
    "MINKOWSKI",
    "POINTELLIGENCE",
    "SPCONV",
    "SPCONV_RSCK",
    "SPCONV_RSKC",
    "TORCHSPARSE",
    "WARPCONVNET",
    "ChannelsAround",
    "SlotsFirst",
    "WeightLayout",
    "load_state",
    "state_of",
]

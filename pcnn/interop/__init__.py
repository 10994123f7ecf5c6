"""Weights of other packages: their layouts into ours and back, for any module tree."""

from pcnn.interop.files import load_network, read_state, save_network
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
from pcnn.interop.networks import PUBLISHED, PublishedNetwork, published
from pcnn.interop.state import load_state, state_of

__all__ = [
    "FLEXGEMM",
    "LAYOUTS",
    "MINKOWSKI",
    "POINTELLIGENCE",
    "PUBLISHED",
    "SPCONV",
    "SPCONV_RSCK",
    "SPCONV_RSKC",
    "TORCHSPARSE",
    "WARPCONVNET",
    "ChannelsAround",
    "PublishedNetwork",
    "SlotsFirst",
    "WeightLayout",
    "load_network",
    "load_state",
    "published",
    "read_state",
    "save_network",
    "state_of",
]

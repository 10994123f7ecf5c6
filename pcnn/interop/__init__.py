"""Weights of other packages: their layouts into ours, for any module tree."""

from pcnn.interop.files import load_network, read_state, save_network
from pcnn.interop.layouts import (
    MINKOWSKI,
    SPCONV,
    TORCHSPARSE,
    ChannelsAround,
    SlotsFirst,
    WeightLayout,
)
from pcnn.interop.networks import PUBLISHED, PublishedNetwork, published
from pcnn.interop.state import load_state

__all__ = [
    "MINKOWSKI",
    "PUBLISHED",
    "SPCONV",
    "TORCHSPARSE",
    "ChannelsAround",
    "PublishedNetwork",
    "SlotsFirst",
    "WeightLayout",
    "load_network",
    "load_state",
    "published",
    "read_state",
    "save_network",
]

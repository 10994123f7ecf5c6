"""Weights of other packages: their layouts into ours, for any module tree."""

from pcnn.interop.layouts import (
    MINKOWSKI,
    SPCONV,
    TORCHSPARSE,
    ChannelsAround,
    SlotsFirst,
    WeightLayout,
    load_state,
)
from pcnn.interop.networks import (
    PUBLISHED,
    PublishedNetwork,
    load_network,
    published,
    read_state,
    save_network,
)

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

"""Channels of two tensors side by side, not yet copied."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from pcnn.geometry import Geometry
from pcnn.tensor import SparseTensor


class JoinedTensor(SparseTensor):
    """``[N, C_1 + C_2]`` read from two sources, copied only when ``features`` is read.

    A skip connection of a decoder is read twice and then dropped: a convolution that takes both
    sources saves writing and reading the copy. The sources must not change before they are read.
    """

    first: Tensor  # [N, C_1]
    second: Tensor  # [N, C_2], of the dtype and device of first

    def __init__(self, first: Tensor, second: Tensor, geometry: Geometry) -> None:
        # written past the frozen base, which has no field for two sources
        self.__dict__.update(first=first, second=second, geometry=geometry)

    @cached_property
    def features(self) -> Tensor:
        """``[N, C_1 + C_2]``, copied at the first request and kept."""
        return torch.cat([self.first, self.second], dim=1)

    @property
    def is_apart(self) -> bool:
        """True if the features have not been copied together."""
        return "features" not in self.__dict__

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of both sources; asking for the features would copy them."""
        return self.first.dtype

    @property
    def channels(self) -> int:
        """Number of channels C_1 + C_2."""
        return self.first.shape[1] + self.second.shape[1]

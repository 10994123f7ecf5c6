"""One of several mixes, by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pcnn.datasets.mixes.scan_mix import ScanMix
from pcnn.datasets.samples import Cloud
from pcnn.ranges import NonNegative


@dataclass(frozen=True)
class OneOf:
    """Choose a mix for every sample; with what is left to 1, none.

    Args:
        mixes: to choose from.
        shares: the chance of each.

    Raises:
        ValueError: not one share a mix, or shares that are no chances.
    """

    mixes: Sequence[ScanMix]
    shares: Sequence[NonNegative]

    def __post_init__(self) -> None:
        if len(self.mixes) != len(self.shares):
            raise ValueError(f"{len(self.shares)} shares for {len(self.mixes)} mixes")
        if min(self.shares, default=0) < 0 or sum(self.shares) > 1 + 1e-9:
            raise ValueError(
                f"shares of mixes must be chances that sum to 1 at most, got {list(self.shares)}"
            )

    def __call__(self, cloud: Cloud, partner: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the mixed scan, or the first as it is."""
        position = generator.random()
        for mix, share in zip(self.mixes, self.shares, strict=True):
            if position < share:
                return mix(cloud, partner, generator)
            position -= share
        return cloud

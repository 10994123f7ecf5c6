"""What a mix of two scans is."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pcnn.datasets.samples import Cloud


class ScanMix(Protocol):
    """Makes one scan of two, a pure function of both and a generator."""

    def __call__(self, cloud: Cloud, partner: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the mixed scan, under the name of the first.

        Args:
            cloud: origin at the sensor, before any other change.
            partner: another scan of the set, likewise.
            generator: of the sample.
        """

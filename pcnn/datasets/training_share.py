"""How much of a training lies before a sample, for changes that grow with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcnn.datasets.sampler import EpochSampler, Key


@dataclass(eq=False)
class TrainingShare:
    """The share of a training's batches that come before the batch of a key.

    A pure function of the key and of what fixes the order: worker processes, devices and
    interruptions change nothing. All samples of a step have the same share.
    """

    sampler: EpochSampler  # the order of the samples, each in the step that the order puts it in
    batches: int  # of the whole training, on each rank; 1 or more

    def __post_init__(self) -> None:
        self._epoch = -1
        self._places = np.zeros(0, dtype=np.int64)  # [n] of the samples in the order of the epoch

    def __call__(self, key: Key) -> float:
        """Share in 0..1; 1 beyond the end."""
        epoch, index = key
        if epoch != self._epoch:
            order = self.sampler.order(epoch)
            self._places = np.empty_like(order)
            self._places[order] = np.arange(len(order))
            self._epoch = epoch
        step = int(self._places[index]) // (self.sampler.batch_size * self.sampler.world)
        return min((epoch * self.sampler.batches_per_epoch + step) / self.batches, 1.0)

"""Which samples make up which batch: pure functions of (seed, epoch, position)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")

Key = tuple[int, int]
"""(epoch, index): the epoch selects the augmentation, the index the scan."""


@dataclass(frozen=True)
class EpochSampler:
    """The endless sequence of training batches of one rank.

    Batch ``p``, counted from the start of training, lies in epoch ``p // batches_per_epoch``, whose
    order is a function of (seed, epoch) alone: any position is reached without replaying others.

    With ``world`` ranks the batches of one step are ``world`` consecutive slices of that order:
    all ranks together see what one process with ``world * batch_size`` samples a batch would see.
    The last samples of an epoch that do not fill a step are left out of it.
    """

    n: int  # number of samples in the set
    batch_size: int = 1  # samples in a batch, on each rank
    _: KW_ONLY
    seed: int = 0  # at least 0; selects all orders
    rank: int = 0  # this process, in [0, world)
    world: int = 1  # number of processes

    def __post_init__(self) -> None:
        if self.n < self.batch_size * self.world:
            wanted = f"one batch of {self.batch_size} on each of {self.world} rank(s)"
            raise ValueError(f"{self.n} training samples cannot fill {wanted}")

    @property
    def batches_per_epoch(self) -> int:
        return self.n // (self.batch_size * self.world)

    def order(self, epoch: int) -> np.ndarray:
        # the spawn key keeps this stream apart from the samples' own [seed, epoch, index]; sorting
        # raw 64-bit words instead of Generator.permutation, whose stream numpy may change
        words = np.random.PCG64(np.random.SeedSequence([self.seed, epoch], spawn_key=(0,)))
        return np.argsort(words.random_raw(self.n), kind="stable").astype(np.int64)

    def batches(self, position: int = 0) -> Iterator[list[Key]]:
        """Yield this rank's batches of keys from the given batch count on, without end."""
        epoch, offset = divmod(position, self.batches_per_epoch)
        while True:
            order = self.order(epoch)
            for step in range(offset, self.batches_per_epoch):
                first = (step * self.world + self.rank) * self.batch_size
                yield [(epoch, int(i)) for i in order[first : first + self.batch_size]]
            epoch, offset = epoch + 1, 0

    def fingerprint(self) -> dict[str, int]:
        """Return the numbers that fix the sequence; equal fingerprints give equal sequences."""
        names = {"samples": "n", "batch_size": "batch_size", "seed": "seed", "world": "world"}
        return {key: getattr(self, name) for key, name in names.items()}


@dataclass(frozen=True)
class EvaluationSampler:
    """One pass over a set, in order, every sample on exactly one rank and none twice."""

    n: int  # number of samples in the set
    batch_size: int = 1  # samples in a batch, on each rank
    _: KW_ONLY
    rank: int = 0  # this process, in [0, world)
    world: int = 1  # number of processes

    def __len__(self) -> int:
        batches = -(-self.n // self.batch_size)
        return -(-batches // self.world)

    def __iter__(self) -> Iterator[list[Key]]:
        """Yield lists of keys (0, index); an empty list where this rank has none left."""
        for step in range(len(self)):
            first = (step * self.world + self.rank) * self.batch_size
            yield [(0, i) for i in range(first, min(first + self.batch_size, self.n))]


def evenly_spaced(items: Sequence[T], limit: int | None) -> list[T]:
    """Return `limit` items, the first and the last among them; all where None or enough."""
    if limit is None or limit >= len(items):
        return list(items)
    rows = np.linspace(0, len(items) - 1, limit).round().astype(int)
    return [items[row] for row in rows]

"""Which samples make up which batch: pure functions of (seed, epoch, position)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
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
    shuffle: bool = True  # False visits 0, 1, 2, ... in every epoch
    costs: np.ndarray | None = field(default=None, compare=False, repr=False)  # [n] of the samples
    within: int = 1  # steps among which samples may change places for that

    def __post_init__(self) -> None:
        check_split(self.batch_size, self.rank, self.world)
        if self.within < 1 or self.seed < 0:
            raise ValueError(f"within from 1, seed from 0 on; got {self.within}, {self.seed}")
        if self.costs is not None and len(self.costs) != self.n:
            raise ValueError(f"{len(self.costs)} costs of {self.n} samples")
        if self.n < self.batch_size * self.world:
            wanted = f"one batch of {self.batch_size} on each of {self.world} rank(s)"
            raise ValueError(f"{self.n} training samples cannot fill {wanted}")

    @property
    def batches_per_epoch(self) -> int:
        return self.n // (self.batch_size * self.world)

    def order(self, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.n, dtype=np.int64)
        # the spawn key keeps this stream apart from the samples' own [seed, epoch, index]; sorting
        # raw 64-bit words instead of Generator.permutation, whose stream numpy may change
        words = np.random.PCG64(np.random.SeedSequence([self.seed, epoch], spawn_key=(0,)))
        return np.argsort(words.random_raw(self.n), kind="stable").astype(np.int64)

    def batches_of(self, epoch: int) -> Callable[[int], np.ndarray]:
        """Return what gives this rank's samples of a step of an epoch, [batch_size]."""
        order, size = self.order(epoch), self.batch_size * self.world
        costs = None if self.world == 1 else self.costs
        dealt: dict[int, np.ndarray] = {}  # the latest steps among which samples change places

        def samples(step: int) -> np.ndarray:
            if costs is None:
                found = order[step * size : (step + 1) * size]
            else:
                window, at = divmod(step, self.within)
                if window not in dealt:
                    dealt.clear()
                    last = min((window + 1) * self.within, self.batches_per_epoch)
                    part = order[window * self.within * size : last * size]
                    seeds = np.random.SeedSequence([self.seed, epoch, window], spawn_key=(1,))
                    dealt[window] = balanced(part, costs, self.world, size, np.random.PCG64(seeds))
                found = dealt[window][at]
            return found[self.rank * self.batch_size : (self.rank + 1) * self.batch_size]

        return samples

    def batches(self, position: int = 0) -> Iterator[list[Key]]:
        """Yield this rank's batches of keys from the given batch count on, without end."""
        if position < 0:
            raise ValueError(f"position must be at least 0, got {position}")
        epoch, offset = divmod(position, self.batches_per_epoch)
        while True:
            samples = self.batches_of(epoch)
            for step in range(offset, self.batches_per_epoch):
                yield [(epoch, int(i)) for i in samples(step)]
            epoch, offset = epoch + 1, 0

    def fingerprint(self) -> dict[str, int]:
        """Return the numbers that fix the sequence; equal fingerprints give equal sequences."""
        return {
            "samples": self.n,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "world": self.world,
            "shuffle": int(self.shuffle),
            "balanced": 0 if self.costs is None or self.world == 1 else self.within,
        }


def balanced(
    part: np.ndarray, costs: np.ndarray, world: int, size: int, words: np.random.PCG64
) -> np.ndarray:
    """Samples of some steps, dealt so that the ranks of a step have like costs."""
    steps = part.reshape(-1, size)
    if len(steps) > 1:
        steps = part[np.argsort(-costs[part], kind="stable")].reshape(-1, size)
        steps = steps[np.argsort(words.random_raw(len(steps)), kind="stable")]
    return np.stack([_dealt(step, costs, size // world, world) for step in steps])


def _dealt(step: np.ndarray, costs: np.ndarray, batch_size: int, world: int) -> np.ndarray:
    """Samples of a step, those of a rank side by side: each to the rank with the least so far."""
    shares: list[list[int]] = [[] for _ in range(world)]
    sums = np.zeros(world)
    for sample in step[np.argsort(-costs[step], kind="stable")]:
        rank = int(np.argmin(sums))
        shares[rank].append(sample)
        sums[rank] = sums[rank] + costs[sample] if len(shares[rank]) < batch_size else np.inf
    return np.array(shares, dtype=np.int64).reshape(-1)


@dataclass(frozen=True)
class EvaluationSampler:
    """One pass over a set, in order, every sample on exactly one rank and none twice.

    Batch ``b`` of the set goes to rank ``b % world``. Every rank gets the same number of batches,
    as collective operations would wait for ever otherwise: where none is left, it is empty.
    """

    n: int  # number of samples in the set
    batch_size: int = 1  # samples in a batch, on each rank
    _: KW_ONLY
    rank: int = 0  # this process, in [0, world)
    world: int = 1  # number of processes

    def __post_init__(self) -> None:
        check_split(self.batch_size, self.rank, self.world)

    def __len__(self) -> int:
        batches = -(-self.n // self.batch_size)
        return -(-batches // self.world)

    def __iter__(self) -> Iterator[list[Key]]:
        """Yield lists of keys (0, index); an empty list where this rank has none left."""
        for step in range(len(self)):
            first = (step * self.world + self.rank) * self.batch_size
            yield [(0, i) for i in range(first, min(first + self.batch_size, self.n))]


def check_split(batch_size: int, rank: int, world: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if not 0 <= rank < world:
        raise ValueError(f"rank must lie in [0, world), got rank {rank} of {world}")


def evenly_spaced(items: Sequence[T], limit: int | None) -> list[T]:
    """Return `limit` items, the first and the last among them; all where None or enough."""
    if limit is None or limit >= len(items):
        return list(items)
    if limit < 1:
        raise ValueError(f"limit must be at least 1 scan or none, got {limit}")
    rows = np.linspace(0, len(items) - 1, limit).round().astype(int)
    return [items[row] for row in rows]


@dataclass(eq=False)
class TrainingShare:
    """The share of a training's batches that come before the batch of a key, a pure function."""

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

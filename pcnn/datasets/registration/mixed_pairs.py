"""Pairs of several sources as one set, with lengths in cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch.utils.data import Dataset

from pcnn.datasets.registration.placed_pairs import PlacedPair, PlacedPairs
from pcnn.datasets.sampler import Key
from pcnn.metrics.registration.pair_results import OF_SOURCE, PairId


@dataclass(eq=False)
class MixedPairs(Dataset[PlacedPair]):
    """Samples of several sources; which one is a function of the key (epoch, index) alone.

    Names of pairs begin with that of their source (`PairId.source_set`).
    """

    parts: Mapping[str, PlacedPairs]  # samples by the name of their source
    alternate: bool  # sources take turns

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a mixed set needs a source of pairs or more")
        self._names = list(self.parts)
        self._longest = max(map(len, self.parts.values()))

    def __len__(self) -> int:
        """Number of samples of an epoch."""
        if self.alternate:
            return len(self._names) * self._longest
        return sum(map(len, self.parts.values()))

    def __getitem__(self, key: Key | int) -> PlacedPair:
        """Return the sample of a key (epoch, index); a plain index stands for epoch 0."""
        epoch, index = key if isinstance(key, tuple) else (0, key)
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of a set of {len(self)}")
        name, own = self._placed(epoch, index)
        pair = self.parts[name][own]
        scene = f"{name}{OF_SOURCE}{pair.name.scene}"
        return replace(pair, name=PairId(scene, pair.name.target, pair.name.source))

    def _placed(self, epoch: int, index: int) -> tuple[str, Key]:
        """Source of a sample, and its key there."""
        if self.alternate:
            place, number = divmod(index, len(self._names))
            name = self._names[number]
            size = len(self.parts[name])
            again = -(-self._longest // size)  # times that a pair comes in an epoch, at most
            return name, (epoch * again + place // size, place % size)
        for name, part in self.parts.items():
            if index < len(part):
                return name, (epoch, index)
            index -= len(part)
        raise AssertionError("the index was checked")

"""Pairs of clouds and how they belong together, and published lists of them, which are pickles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from pcnn.datasets.cloud_sets import DataSource, Kind, Published, Split
from pcnn.files.bounded import named
from pcnn.files.pickles import array_of, read_pickle
from pcnn.files.simulated import kind_of
from pcnn.metrics.registration.pair_results import PairId
from pcnn.registration.transforms import assembled, rigid


@dataclass(frozen=True, eq=False)
class RegistrationPair:
    """Two clouds of a scene with their true transform."""

    scene: str  # scene or sequence
    target: int  # index of the target cloud, i of gt.log
    source: int  # index of the source cloud, j
    transform: Tensor  # [4, 4] float64, maps the source into the target's frame
    information: Tensor | None = None  # [6, 6] float64 of gt.info; None where the set has none
    overlap: float | None = None  # share of the source that the target sees
    index: int = 0  # place in the scene's ground truth, from 0

    @property
    def id(self) -> PairId:
        return PairId(self.scene, self.target, self.source)


@dataclass(eq=False)
class PairDataset:
    """Pairs of a set, and how their clouds are read."""

    name: str  # the set and its list of pairs, e.g. ``3DLoMatch``
    benchmark: str  # whose thresholds apply, ``threedmatch`` or ``kitti``
    ground_truth: str  # which truth the figures are measured against, e.g. ``legacy``
    root: Path  # folder of the set
    pairs: Sequence[RegistrationPair]  # in the order of the official lists
    cloud: Callable[[str, int], Tensor]  # points [P, 3] float32 [m] of a scene's cloud, own frame
    notes: Sequence[str] = ()  # remarks that belong beside the figures

    @cached_property
    def source_kind(self) -> Kind:
        return kind_of(self.root)


class PairSets(Protocol):
    """Pairs by split. Making one reads nothing."""

    @property
    def benchmark(self) -> str:
        """Whose thresholds apply, ``threedmatch`` or ``kitti``."""

    def find(self, split: Split) -> PairDataset:
        """Find the pairs of a split; simulates them where there is no folder.

        Raises:
            FileNotFoundError: files are missing.
            ValueError: an unknown option, or data of the other kind.
        """


@dataclass(frozen=True)
class PublishedPairs:
    """Pairs of a published set, or of what is simulated in its formats."""

    root: str | None = None  # folder of the set
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.Published.found
    data_dir: str = "data"  # folder for the default root and for simulated sets
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator for test pairs
    simulate_train: Mapping[str, Any] | None = None  # the same for training and validation pairs
    benchmark: ClassVar[str]
    published: ClassVar[Published]

    def found(self, split: Split) -> DataSource:
        return self._tested if split == "test" else self._trained

    # each is found once: the log tells it once
    @cached_property
    def _tested(self) -> DataSource:
        return self.published.found(self.root, self.source, self.data_dir, self.simulate)

    @cached_property
    def _trained(self) -> DataSource:
        return self.published.found(self.root, self.source, self.data_dir, self.simulate_train)


def read_list(path: Path) -> list[RegistrationPair]:
    """Pairs of fragments or of KITTI scans as GeoTransformer lists them, or Predator (a dict)."""
    content = read_pickle(path)
    with named(path, "list of pairs"):
        if isinstance(content, dict):
            names = ("src", "tgt", "rot", "trans", "overlap")
            content = [_of_predator(*one) for one in zip(*map(content.get, names), strict=True)]  # type: ignore[arg-type]
        return [_pair(index, one) for index, one in enumerate(content)]


def _of_predator(source: str, target: str, turn: Any, shift: Any, overlap: Any) -> dict[str, Any]:
    """A pair of paths such as test/SCENE/cloud_bin_N.pth in GeoTransformer's form."""
    return {
        "scene_name": Path(target).parent.name,
        "frag_id0": int(Path(target).stem.rpartition("_")[2]),
        "frag_id1": int(Path(source).stem.rpartition("_")[2]),
        "rotation": turn,
        "translation": shift,
        "overlap": overlap,
    }


def _pair(index: int, one: Any) -> RegistrationPair:
    overlap = None
    if "seq_id" in one:
        scene, ends = f"{_whole(one['seq_id']):02d}", (one["frame0"], one["frame1"])
        transform = _numbers(one["transform"])
    else:
        scene, ends = one["scene_name"], (one["frag_id0"], one["frag_id1"])
        transform = assembled(_numbers(one["rotation"]), _numbers(one["translation"]).reshape(3))
        overlap = float(one["overlap"])
        if not 0.0 <= overlap <= 1.0:
            raise ValueError(f"entry {index}: an overlap lies in 0..1, found {overlap:g}")
    if not isinstance(scene, str) or not scene or "/" in scene or scene.startswith("."):
        raise ValueError(f"entry {index}: {str(scene)[:40]!r} is no name of a scene")
    transform = rigid(transform, f"transform of entry {index}")
    target, source = map(_whole, ends)
    return RegistrationPair(scene, target, source, transform, overlap=overlap, index=index)


def _whole(value: Any) -> int:
    number = int(value)
    if number != value or number < 0:
        raise ValueError(f"a number of a cloud is whole, found {value}")
    return number


def _numbers(values: Any) -> Tensor:
    array = array_of(values)
    if array is None or array.size > 16:
        raise ValueError("a transform must be an array")
    return torch.from_numpy(array.astype(np.float64))

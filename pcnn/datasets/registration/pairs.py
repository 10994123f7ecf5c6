"""Pairs of clouds and how they belong together, and published lists of them, which are pickles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.pickles import array_of, read_pickle
from pcnn.metrics.registration.pair_results import PairId
from pcnn.registration.transforms import assembled, rigid

if TYPE_CHECKING:
    from pcnn.datasets.cloud_sets import Split


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


class PairDataset(Protocol):
    """The part of a data set that registration needs."""

    #: the set and its list of pairs, e.g. ``3DLoMatch``
    name: str
    #: whose thresholds apply, ``threedmatch`` or ``kitti``
    benchmark: str
    #: which truth the figures are measured against, e.g. ``legacy``
    ground_truth: str
    #: ``real`` or ``simulated``
    source_kind: str
    #: folder of the set
    root: Path
    #: in the order of the official lists
    pairs: Sequence[RegistrationPair]

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a cloud, in its own frame [m]."""
        ...

    def notes(self) -> list[str]:
        """Return remarks that belong beside the figures, a line each."""
        ...


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


def read_indoor_list(path: Path) -> list[RegistrationPair]:
    """Pairs of 3DMatch or 3DLoMatch, as GeoTransformer (a list) or Predator (a dict) ships them."""
    content = read_pickle(path)
    with named(path, "list of indoor pairs"):
        if isinstance(content, dict):
            names = ("src", "tgt", "rot", "trans", "overlap")
            content = [_of_predator(*one) for one in zip(*map(content.get, names), strict=True)]  # type: ignore[arg-type]
        return [
            _pair(
                path,
                index,
                one,
                one["scene_name"],
                assembled(_numbers(one["rotation"]), _numbers(one["translation"]).reshape(3)),
                _share(path, index, float(one["overlap"])),
            )
            for index, one in enumerate(content)
        ]


def read_kitti_list(path: Path) -> list[RegistrationPair]:
    """Pairs of KITTI odometry as GeoTransformer ships them, their ground truth ``legacy``."""
    content = read_pickle(path)
    with named(path, "list of KITTI pairs"):
        pairs = []
        for index, one in enumerate(content):
            one |= {"frag_id0": one["frame0"], "frag_id1": one["frame1"]}
            scene = f"{_whole(path, index, one['seq_id']):02d}"
            pairs.append(_pair(path, index, one, scene, _numbers(one["transform"]), None))
        return pairs


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


def _pair(
    path: Path, index: int, one: Any, scene: Any, transform: torch.Tensor, overlap: float | None
) -> RegistrationPair:
    if not isinstance(scene, str) or not scene or "/" in scene or scene.startswith("."):
        raise FileError(path, f"entry {index}: {str(scene)[:40]!r} is no name of a scene")
    return RegistrationPair(
        scene,
        _whole(path, index, one["frag_id0"]),
        _whole(path, index, one["frag_id1"]),
        rigid(transform, f"{path}: transform of entry {index}"),
        overlap=overlap,
        index=index,
    )


def _share(path: Path, index: int, share: float) -> float:
    if not 0.0 <= share <= 1.0:
        raise FileError(path, f"entry {index}: an overlap lies in 0..1, found {share:g}")
    return share


def _whole(path: Path, index: int, value: Any) -> int:
    number = int(value)
    if number != value or number < 0:
        raise FileError(path, f"entry {index}: a number of a cloud is whole, found {value}")
    return number


def _numbers(values: Any) -> torch.Tensor:
    array = array_of(values)
    if array is None or array.size > 16:
        raise ValueError("a transform must be an array")
    return torch.from_numpy(array.astype(np.float64))

"""3DMatch and 3DLoMatch: pairs of indoor fragments, to test on and to train on.

Test pairs come from ground truth files (`ThreeDMatch`), pairs for training and validation from the
lists of Predator and GeoTransformer (`IndoorPairs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

from pcnn.datasets.cloud_sets import DataSource, Published, Split
from pcnn.datasets.readers.fragments import find_fragment, read_fragment
from pcnn.datasets.registration.gt_files import read_scene
from pcnn.datasets.registration.pairs import PairDataset, RegistrationPair, read_indoor_list
from pcnn.files.simulated import kind_of
from pcnn.ranges import PartialShare

_FRAGMENTS = Published(
    "3DMatch",
    "threedmatch",
    "pcnn.simulate.rooms.threedmatch.THREEDMATCH",
    "Official fragments and lists: see docs/registration.md",
)

#: In evaluation order.
TEST_SCENES = (
    "7-scenes-redkitchen",
    "sun3d-home_at-home_at_scan1_2013_jan_1",
    "sun3d-home_md-home_md_scan9_2012_sep_30",
    "sun3d-hotel_uc-scan3",
    "sun3d-hotel_umd-maryland_hotel1",
    "sun3d-hotel_umd-maryland_hotel3",
    "sun3d-mit_76_studyroom-76-1studyroom2",
    "sun3d-mit_lab_hj-lab_hj_tea_nov_2_2012_scan1_erika",
)
LISTS = ("3DMatch", "3DLoMatch")

#: Pairs that overlap by more are trained on (Predator, GeoTransformer).
OVERLAP = 0.1

# fragments below the root: Predator's archive, its folder of a split, scenes alone; scenes for
# validation lie beside those for training
_CLOUDS = ("indoor/{split}", "data/indoor/{split}", "data/{split}", "{split}", "")
# GeoTransformer's and Predator's trees, and files beside the data
_BENCHMARKS = ("metadata/benchmarks", "configs/benchmarks", "benchmarks")
_LISTS = (
    "metadata/{split}.pkl",
    "configs/indoor/{split}_info.pkl",
    "configs/{split}_info.pkl",
    "indoor/{split}_info.pkl",
    "data/indoor/{split}_info.pkl",
    "{split}_info.pkl",
    "{split}.pkl",
)
_TEST_STEPS = (
    "Put Predator's fragments at ROOT/indoor/test/SCENE/cloud_bin_N.pth (or .ply) and gt.log, "
    "gt.info at ROOT/benchmarks/3DMatch/SCENE/"
)
_TRAINING_STEPS = (
    "Put Predator's fragments at ROOT/indoor/train/SCENE/cloud_bin_N.pth and its train_info.pkl, "
    "val_info.pkl (or GeoTransformer's metadata/train.pkl, val.pkl) below ROOT"
)
_KEPT = 16  # fragments of a test in memory


class _Fragments:
    """Pairs of fragments in frames of their own, a folder a scene."""

    benchmark = "threedmatch"
    ground_truth = "gt.log"

    def __init__(self, root: str | Path, steps: str) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"3DMatch: {self.root} is not a folder. {steps}")
        self.source_kind: str = kind_of(self.root)
        self.pairs: Sequence[RegistrationPair] = []
        self.folders: dict[str, Path] = {}

    def cloud(self, scene: str, index: int) -> Tensor:
        return read_fragment(find_fragment(self.folders[scene], f"cloud_bin_{index}"))


class ThreeDMatch(_Fragments):
    """Test pairs of 3DMatch or 3DLoMatch, or of scenes in the same form."""

    def __init__(
        self,
        root: str | Path,
        pair_list: str = "3DMatch",
        scenes: Sequence[str] | None = None,
        benchmarks: str | Path | None = None,
    ) -> None:
        if pair_list not in LISTS:
            raise ValueError(f"pair_list must be one of {', '.join(LISTS)}, got {pair_list!r}")
        super().__init__(root, _TEST_STEPS)
        self.name = pair_list
        self.folders = self._scene_folders(scenes)
        for scene, folder in self.folders.items():
            places = [self.root / place / pair_list / scene for place in _BENCHMARKS]
            places += [self.root / f"{scene}-evaluation", folder]
            if benchmarks is not None:
                places = [Path(benchmarks) / pair_list / scene, Path(benchmarks) / scene]
            truth = _first(place / "gt.log" for place in places).parent
            self.pairs = [*self.pairs, *read_scene(truth, scene)]
        self._read = lru_cache(maxsize=_KEPT)(super().cloud)

    def cloud(self, scene: str, index: int) -> Tensor:
        return self._read(scene, index)

    def notes(self) -> list[str]:
        official = [scene for scene in TEST_SCENES if scene in self.folders]
        if len(official) == len(TEST_SCENES):
            return []
        return [
            f"{len(self.folders)} scenes, {len(official)} of the 8 of {self.name}: "
            f"{', '.join(self.folders)}"
        ]

    def _scene_folders(self, scenes: Sequence[str] | None) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for place in _CLOUDS:
            parent = self.root / place.format(split="test")
            for folder in sorted(parent.iterdir()) if parent.is_dir() else ():
                if folder.is_dir() and any(folder.glob("cloud_bin_*")):
                    found.setdefault(folder.name, folder)
        if scenes is None:
            # the official ones in their order, then others
            scenes = [scene for scene in TEST_SCENES if scene in found]
            scenes += [scene for scene in found if scene not in TEST_SCENES]
        missing = [scene for scene in scenes if scene not in found]
        if missing or not scenes:
            raise FileNotFoundError(
                f"3DMatch: {self.root} has no fragments cloud_bin_N of "
                f"{', '.join(missing) or 'any scene'}. {_TEST_STEPS}"
            )
        return {name: found[name] for name in scenes}


class IndoorPairs(_Fragments):
    """Pairs of fragments in frames of their own, for training or validation."""

    ground_truth = "pair list"

    def __init__(self, root: str | Path, split: str, overlap: float = OVERLAP) -> None:
        if split not in ("train", "val"):
            raise ValueError(f"split must be train or val, got {split!r}")
        if not 0.0 <= overlap < 1.0:
            raise ValueError(f"overlap must be a share in [0, 1), got {overlap}")
        super().__init__(root, _TRAINING_STEPS)
        self.name = f"3DMatch {split} pairs"
        self.path = _first((self.root / place.format(split=split) for place in _LISTS), True)
        listed = read_indoor_list(self.path)
        self.pairs = [pair for pair in listed if pair.overlap is None or pair.overlap > overlap]
        self._notes = []
        if len(self.pairs) < len(listed):
            few = f"{len(listed) - len(self.pairs)} of {len(listed)} pairs of {self.path}"
            self._notes = [f"{few} overlap by {overlap:g} or less and are left out"]
        scenes = list(dict.fromkeys(pair.scene for pair in self.pairs))
        for scene in scenes:
            folders = [self.root / place.format(split="train") / scene for place in _CLOUDS]
            for folder in filter(Path.is_dir, folders):
                self.folders.setdefault(scene, folder)
        missing = [scene for scene in scenes if scene not in self.folders]
        told = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        if missing:
            raise FileNotFoundError(
                f"3DMatch: {self.root} has no fragments of {told}, of {len(scenes)} scenes in "
                f"{self.path}. {_TRAINING_STEPS}"
            )

    def notes(self) -> list[str]:
        return self._notes


def _first(places: Iterable[Path], trains: bool = False) -> Path:
    tried = list(places)
    for place in tried:
        if place.is_file():
            return place
    raise FileNotFoundError(
        f"3DMatch: none of {', '.join(map(str, tried))} is there. "
        f"{_TRAINING_STEPS if trains else _TEST_STEPS}"
    )


@dataclass(frozen=True)
class ThreeDMatchSets:
    """Pairs of indoor fragments, or of simulated rooms in their formats."""

    root: str | None = None  # folder of the set
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.Published.found
    data_dir: str = "data"  # folder for the default root and for simulated sets
    pair_list: str = "3DMatch"  # test pairs, 3DMatch or 3DLoMatch
    scenes: Sequence[str] | None = None  # of the test pairs; None takes those that are there
    benchmarks: str | None = None  # folder with LIST/SCENE/gt.log; None looks below the root
    overlap: PartialShare = OVERLAP  # training pairs overlap by more
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator for test pairs
    simulate_train: Mapping[str, Any] | None = None  # the same for training and validation pairs
    benchmark = "threedmatch"

    def find(self, split: Split) -> PairDataset:
        if split == "test":
            root = self._tested.root
            return ThreeDMatch(root, self.pair_list, self.scenes, self.benchmarks)
        return IndoorPairs(self._trained.root, split, self.overlap)

    # each is found once: the log tells it once
    @cached_property
    def _tested(self) -> DataSource:
        return _FRAGMENTS.found(self.root, self.source, self.data_dir, self.simulate)

    @cached_property
    def _trained(self) -> DataSource:
        return _FRAGMENTS.found(self.root, self.source, self.data_dir, self.simulate_train)

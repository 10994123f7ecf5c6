"""3DMatch and 3DLoMatch: pairs of indoor fragments, to test on and to train on.

Test pairs come from ground truth files, pairs for training and validation from the lists of
Predator and GeoTransformer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from torch import Tensor

from pcnn.datasets.cloud_sets import Published, Split
from pcnn.datasets.readers.fragments import find_fragment, read_fragment
from pcnn.datasets.registration.gt_files import read_scene
from pcnn.datasets.registration.pairs import (
    PairDataset,
    PublishedPairs,
    RegistrationPair,
    read_list,
)
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


def read_cloud(folders: Mapping[str, Path], scene: str, index: int) -> Tensor:
    return read_fragment(find_fragment(folders[scene], f"cloud_bin_{index}"))


def benchmark_pairs(
    root: Path,
    pair_list: str = "3DMatch",
    scenes: Sequence[str] | None = None,
    benchmarks: str | None = None,
) -> PairDataset:
    """Test pairs of 3DMatch or 3DLoMatch, or of scenes in the same form."""
    found: dict[str, Path] = {}
    for place in _CLOUDS:
        parent = root / place.format(split="test")
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
            f"3DMatch: {root} has no fragments cloud_bin_N of "
            f"{', '.join(missing) or 'any scene'}. {_TEST_STEPS}"
        )
    pairs: list[RegistrationPair] = []
    for scene in scenes:
        places = [root / place / pair_list / scene for place in _BENCHMARKS]
        places += [root / f"{scene}-evaluation", found[scene]]
        if benchmarks is not None:
            places = [Path(benchmarks) / pair_list / scene, Path(benchmarks) / scene]
        truth = _first([place / "gt.log" for place in places], _TEST_STEPS).parent
        pairs += read_scene(truth, scene)
    notes, official = [], [scene for scene in TEST_SCENES if scene in scenes]
    if len(official) < len(TEST_SCENES):
        some = f"{len(scenes)} scenes, {len(official)} of the 8 of {pair_list}"
        notes = [f"{some}: {', '.join(scenes)}"]
    cloud = partial(read_cloud, {name: found[name] for name in scenes})
    return PairDataset(pair_list, "threedmatch", "gt.log", root, pairs, cloud, notes)


def indoor_pairs(root: Path, split: Split, overlap: float = OVERLAP) -> PairDataset:
    """Pairs of fragments in frames of their own, for training or validation."""
    path = _first([root / place.format(split=split) for place in _LISTS], _TRAINING_STEPS)
    listed = read_list(path)
    pairs = [pair for pair in listed if pair.overlap is None or pair.overlap > overlap]
    notes = []
    if len(pairs) < len(listed):
        few = f"{len(listed) - len(pairs)} of {len(listed)} pairs of {path}"
        notes = [f"{few} overlap by {overlap:g} or less and are left out"]
    folders: dict[str, Path] = {}
    for scene in dict.fromkeys(pair.scene for pair in pairs):
        places = [root / place.format(split="train") / scene for place in _CLOUDS]
        folder = next(filter(Path.is_dir, places), None)
        if folder is None:
            told = f"{root} has no fragments of {scene}, which {path} lists"
            raise FileNotFoundError(f"3DMatch: {told}. {_TRAINING_STEPS}")
        folders[scene] = folder
    name, cloud = f"3DMatch {split} pairs", partial(read_cloud, folders)
    return PairDataset(name, "threedmatch", "pair list", root, pairs, cloud, notes)


def _first(places: Sequence[Path], steps: str) -> Path:
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"3DMatch: none of {', '.join(map(str, places))} is there. {steps}")


@dataclass(frozen=True)
class ThreeDMatchSets(PublishedPairs):
    """Pairs of indoor fragments, or of simulated rooms in their formats."""

    pair_list: Literal["3DMatch", "3DLoMatch"] = "3DMatch"  # test pairs
    scenes: Sequence[str] | None = None  # of the test pairs; None takes those that are there
    benchmarks: str | None = None  # folder with LIST/SCENE/gt.log; None looks below the root
    overlap: PartialShare = OVERLAP  # training pairs overlap by more
    benchmark = "threedmatch"
    published = _FRAGMENTS

    def find(self, split: Split) -> PairDataset:
        root = self.found(split).root
        if split == "test":
            return benchmark_pairs(root, self.pair_list, self.scenes, self.benchmarks)
        return indoor_pairs(root, split, self.overlap)

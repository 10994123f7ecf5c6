"""3DMatch and 3DLoMatch: pairs of indoor fragments, to test on and to train on.

Test pairs come from ground truth files (`ThreeDMatch`), pairs for training and validation from the
lists of Predator and GeoTransformer (`IndoorPairs`) or from those of FCGF (`FCGFPairs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from pcnn.datasets.readers.fragments import find_fragment, read_fragment
from pcnn.datasets.registration.gt_files import checked_overlap, read_scene
from pcnn.datasets.registration.pair_lists import read_indoor_list
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.errors import FileError
from pcnn.files.simulated import kind_of
from pcnn.files.text import finite_numbers, numbered_lines

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
        """Points [P, 3] float32 of a fragment, in its own frame [m]."""
        path = find_fragment(self.folders[scene], f"cloud_bin_{index}")
        return read_fragment(path)


class ThreeDMatch(_Fragments):
    """Test pairs of 3DMatch or 3DLoMatch, or of scenes in the same form.

    Fragments are looked for below ``root`` as Predator's archive has them, or one folder a scene;
    ground truth in ``benchmarks/LIST/SCENE/``, in ``SCENE-evaluation/`` (the original download) or
    in ``SCENE/`` itself (`pcnn registration make-gt`).
    """

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
        given = None if benchmarks is None else Path(benchmarks)
        self.pairs = [
            pair for scene in self.folders for pair in read_scene(self._truth(scene, given), scene)
        ]
        self._read = lru_cache(maxsize=_KEPT)(super().cloud)

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a fragment, which is kept for a while; see `PairDataset`."""
        return self._read(scene, index)

    def notes(self) -> list[str]:
        """Which of the official scenes are missing."""
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
            names = [scene for scene in TEST_SCENES if scene in found]
            names += [scene for scene in found if scene not in TEST_SCENES]
        else:
            names = list(scenes)
            missing = [scene for scene in names if scene not in found]
            if missing:
                raise FileNotFoundError(
                    f"3DMatch: {self.root} has no fragments of {', '.join(missing)}. {_TEST_STEPS}"
                )
        if not names:
            raise FileNotFoundError(
                f"3DMatch: {self.root} holds no folder with cloud_bin_N. {_TEST_STEPS}"
            )
        return {name: found[name] for name in names}

    def _truth(self, scene: str, benchmarks: Path | None) -> Path:
        places = [self.root / place / self.name / scene for place in _BENCHMARKS]
        places += [self.root / f"{scene}-evaluation", self.folders[scene]]
        if benchmarks is not None:
            places = [benchmarks / self.name / scene, benchmarks / scene]
        for place in places:
            if (place / "gt.log").is_file():
                return place
        raise FileNotFoundError(
            f"3DMatch: no gt.log of {scene} in {', '.join(map(str, places))}. {_TEST_STEPS}"
        )


class IndoorPairs(_Fragments):
    """Pairs of fragments in frames of their own, for training or validation."""

    ground_truth = "pair list"

    def __init__(
        self,
        root: str | Path,
        split: str,
        overlap: float = OVERLAP,
        allow_missing: bool = False,
    ) -> None:
        if split not in ("train", "val"):
            raise ValueError(f"split must be train or val, got {split!r}")
        if not 0.0 <= overlap < 1.0:
            raise ValueError(f"overlap must be a share in [0, 1), got {overlap}")
        super().__init__(root, _TRAINING_STEPS)
        self.name = f"3DMatch {split} pairs"
        self.path = self._list(split)
        listed = read_indoor_list(self.path)
        self.pairs = [pair for pair in listed if pair.overlap is None or pair.overlap > overlap]
        self._left_out, self._listed = len(listed) - len(self.pairs), len(listed)
        self._overlap = overlap
        scenes = list(dict.fromkeys(pair.scene for pair in self.pairs))
        found = {scene: self._folder(scene) for scene in scenes}
        self.folders = {scene: folder for scene, folder in found.items() if folder is not None}
        self._missing = [scene for scene in scenes if scene not in self.folders]
        nothing = split == "train" and not self.folders
        if self._missing and (nothing or not allow_missing):
            raise FileNotFoundError(
                f"3DMatch: {self.root} has no fragments of {counted(self._missing)}, of "
                f"{len(scenes)} scenes in {self.path}. "
                f"dataset.allow_missing=true uses the scenes that are there. {_TRAINING_STEPS}"
            )
        self.pairs = [pair for pair in self.pairs if pair.scene in self.folders]

    def notes(self) -> list[str]:
        """How many pairs of the list were left out, and scenes that are missing."""
        lines = []
        if self._left_out:
            lines.append(
                f"{self._left_out} of {self._listed} pairs of {self.path} overlap by "
                f"{self._overlap:g} or less and are left out"
            )
        if self._missing:
            lines.append(f"left out, as their fragments are missing: {counted(self._missing)}")
        return lines

    def _list(self, split: str) -> Path:
        for place in _LISTS:
            path = self.root / place.format(split=split)
            if path.is_file():
                return path
        places = ", ".join(place.format(split=split) for place in _LISTS)
        raise FileNotFoundError(
            f"3DMatch: {self.root} has no list of {split} pairs ({places}). {_TRAINING_STEPS}"
        )

    def _folder(self, scene: str) -> Path | None:
        folders = [self.root / place.format(split="train") / scene for place in _CLOUDS]
        return next((folder for folder in folders if folder.is_dir()), None)


def counted(scenes: Sequence[str]) -> str:
    """The first of some scenes, and how many more."""
    more = f" and {len(scenes) - 3} more" if len(scenes) > 3 else ""
    return f"{', '.join(scenes[:3])}{more}"


LISTED = "0.30"  # of the published lists

#: Validation scenes of FCGF (config/val_3dmatch.txt); it trains on all others.
VAL_SCENES = (
    "sun3d-brown_bm_4-brown_bm_4",
    "sun3d-harvard_c11-hv_c11_2",
    "7-scenes-heads",
    "rgbd-scenes-v2-scene_10",
    "bundlefusion-office0",
    "analysis-by-synthesis-apt2-kitchen",
)


class FCGFPairs:
    """Pairs of the files ``{scene}*-0.30.txt``, whose lines are ``a.npz b.npz [overlap]``.

    Clouds are stored in one frame a scene, so the true transform is the identity: training turns
    both at random.
    """

    name = "3DMatch training pairs"
    benchmark = "threedmatch"
    ground_truth = "world frame"

    def __init__(
        self,
        root: str | Path,
        scenes: Sequence[str] | None = None,
        without: Sequence[str] = (),
        allow_missing: bool = False,
    ) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"{self.root} is not a folder of FCGF's training pairs")
        self.source_kind: str = kind_of(self.root)
        self.files: list[str] = []  # a cloud's index is its place here
        pairs: list[RegistrationPair] = []
        places: dict[str, int] = {}
        for path in self._lists(scenes, tuple(without)):
            for number, line in numbered_lines(path):
                words = line.split()
                if len(words) not in (2, 3):
                    raise FileError(path, f"line {number}: want two files, found {line[:80]!r}")
                target, source = (self._place(word, places) for word in words[:2])
                overlap = None
                if len(words) > 2:
                    (share,) = finite_numbers(path, number, words[2:], 1)
                    overlap = checked_overlap(path, f"line {number}", share)
                eye, index = torch.eye(4, dtype=torch.float64), number - 1
                pairs.append(RegistrationPair(path.stem, target, source, eye, None, overlap, index))
        self._listed = len(pairs)
        if allow_missing:
            there = [(self.root / file).is_file() for file in self.files]
            pairs = [pair for pair in pairs if there[pair.target] and there[pair.source]]
        self._missing = self._listed - len(pairs)
        self.pairs: Sequence[RegistrationPair] = pairs

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a cloud, in its scene's frame [m]."""
        return read_fragment(self.root / self.files[index])

    def notes(self) -> list[str]:
        """How many pairs were left out."""
        if not self._missing:
            return []
        return [f"{self._missing} of {self._listed} pairs are left out, as clouds are missing"]

    def _lists(self, scenes: Sequence[str] | None, without: tuple[str, ...]) -> list[Path]:
        found = []
        for scene in ("",) if scenes is None else scenes:
            lists = sorted(self.root.glob(f"{scene}*{LISTED}.txt"))
            lists = [path for path in lists if not path.name.startswith(without)]
            if not lists:
                raise FileNotFoundError(f"{self.root}: no list of pairs {scene}*{LISTED}.txt")
            found += lists
        return found

    def _place(self, file: str, places: dict[str, int]) -> int:
        if file not in places:
            places[file] = len(self.files)
            self.files.append(file)
        return places[file]

"""Training and validation pairs of 3DMatch, as Predator and GeoTransformer or as FCGF list them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pcnn.datasets.readers.fragments import find_fragment, read_fragment
from pcnn.datasets.registration.pair_lists import read_indoor_list
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.errors import FileError
from pcnn.files.bounded import LIMIT
from pcnn.files.simulated import is_simulated
from pcnn.files.text import finite_numbers, numbered_lines

#: Pairs that overlap by more are trained on (Predator, GeoTransformer).
OVERLAP = 0.1

# below the root; scenes for validation lie beside those for training
_CLOUDS = ("indoor/train", "data/indoor/train", "data/train", "train", "")
# GeoTransformer's and Predator's trees, and files beside the data
_LISTS = (
    "metadata/{split}.pkl",
    "configs/indoor/{split}_info.pkl",
    "configs/{split}_info.pkl",
    "indoor/{split}_info.pkl",
    "data/indoor/{split}_info.pkl",
    "{split}_info.pkl",
    "{split}.pkl",
)
_STEPS = (
    "Put Predator's fragments at ROOT/indoor/train/SCENE/cloud_bin_N.pth and its train_info.pkl, "
    "val_info.pkl (or GeoTransformer's metadata/train.pkl, val.pkl) below ROOT"
)


class IndoorPairs:
    """Pairs of fragments in frames of their own, for training or validation.

    Args:
        root: the folder, laid out as Predator's or GeoTransformer's archive.
        split: ``train`` or ``val``.
        overlap: pairs that overlap by no more are left out; pairs without a figure stay.
        allow_missing: leave out pairs of scenes whose fragments are not there.
        max_gib: largest size of a file [GiB].

    Raises:
        FileNotFoundError: no list, or no fragments of a scene; the message says what belongs where.
        ValueError: another split, or a list that breaks its format.
    """

    benchmark = "threedmatch"
    ground_truth = "pair list"

    def __init__(
        self,
        root: str | Path,
        split: str,
        overlap: float = OVERLAP,
        allow_missing: bool = False,
        max_gib: float = LIMIT,
    ) -> None:
        if split not in ("train", "val"):
            raise ValueError(f"split must be train or val, got {split!r}")
        if not 0.0 <= overlap < 1.0:
            raise ValueError(f"overlap must be a share in [0, 1), got {overlap}")
        self.root = Path(root)
        self._max_gib = max_gib
        if not self.root.is_dir():
            raise FileNotFoundError(f"3DMatch: {self.root} is not a folder. {_STEPS}")
        self.name = f"3DMatch {split} pairs"
        self.source_kind = "simulated" if is_simulated(self.root) else "real"
        self.path = self._list(split)
        listed = read_indoor_list(self.path)
        self.pairs: Sequence[RegistrationPair] = [
            pair for pair in listed if pair.overlap is None or pair.overlap > overlap
        ]
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
                f"dataset.allow_missing=true uses the scenes that are there. {_STEPS}"
            )
        self.pairs = [pair for pair in self.pairs if pair.scene in self.folders]

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a fragment, in its own frame [m].

        Raises:
            FileNotFoundError: no such fragment.
            ValueError: a broken file.
        """
        return read_fragment(
            find_fragment(self.folders[scene], f"cloud_bin_{index}"), self._max_gib
        )

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
            f"3DMatch: {self.root} has no list of {split} pairs ({places}). {_STEPS}"
        )

    def _folder(self, scene: str) -> Path | None:
        for place in _CLOUDS:
            folder = self.root / place / scene
            if folder.is_dir():
                return folder
        return None


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

    Args:
        root: folder of the lists and of the clouds.
        scenes: names, of which a list's name begins with one; None takes every list.
        without: names, of which no list's name may begin with one.
        allow_missing: leave out pairs of clouds that are not there.
        limit: that many pairs at most.
        max_gib: largest size of a file [GiB].

    Raises:
        FileNotFoundError: no folder, or no list of a scene.
        FileError: a line without two files, or with an overlap that is none.
    """

    name = "3DMatch training pairs"
    benchmark = "threedmatch"
    ground_truth = "world frame"

    def __init__(
        self,
        root: str | Path,
        scenes: Sequence[str] | None = None,
        limit: int | None = None,
        without: Sequence[str] = (),
        allow_missing: bool = False,
        max_gib: float = LIMIT,
    ) -> None:
        self.root = Path(root)
        self._max_gib = max_gib
        if not self.root.is_dir():
            raise FileNotFoundError(f"{self.root} is not a folder of FCGF's training pairs")
        self.source_kind = "simulated" if is_simulated(self.root) else "real"
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
                    (overlap,) = finite_numbers(path, number, words[2:], 1)
                    if not 0.0 <= overlap <= 1.0:
                        raise FileError(path, f"line {number}: an overlap lies in 0..1")
                pairs.append(
                    RegistrationPair(
                        path.stem,
                        target,
                        source,
                        torch.eye(4, dtype=torch.float64),
                        overlap=overlap,
                        index=number - 1,
                    )
                )
        self._listed = len(pairs)
        if allow_missing:
            there = [(self.root / file).is_file() for file in self.files]
            pairs = [pair for pair in pairs if there[pair.target] and there[pair.source]]
        self._missing = self._listed - len(pairs)
        self.pairs: Sequence[RegistrationPair] = pairs[:limit]

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a cloud, in its scene's frame [m]."""
        return read_fragment(self.root / self.files[index], self._max_gib)

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

"""Training and validation pairs of 3DMatch, as Predator and GeoTransformer list them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from pcnn.datasets.registration.fragment_files import find_fragment, read_fragment
from pcnn.datasets.registration.pair_lists import read_indoor_list
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.datasets.simulate.marker import is_simulated

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

    Raises:
        FileNotFoundError: no list, or no fragments of a scene; the message says what belongs where.
        ValueError: another split, or a list that breaks its format.
    """

    benchmark = "threedmatch"
    ground_truth = "pair list"

    def __init__(self, root: str | Path, split: str, overlap: float = OVERLAP) -> None:
        if split not in ("train", "val"):
            raise ValueError(f"split must be train or val, got {split!r}")
        if not 0.0 <= overlap < 1.0:
            raise ValueError(f"overlap must be a share in [0, 1), got {overlap}")
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"3DMatch: {self.root} is not a folder. {_STEPS}")
        self.name = f"3DMatch {split} pairs"
        self.source_kind = "simulated" if is_simulated(self.root) else "real"
        self.path = self._list(split)
        listed = read_indoor_list(self.path)
        self.pairs: Sequence[RegistrationPair] = [
            pair for pair in listed if pair.overlap is None or pair.overlap > overlap
        ]
        self._left_out = len(listed) - len(self.pairs)
        self._overlap = overlap
        scenes = dict.fromkeys(pair.scene for pair in self.pairs)
        self.folders = {scene: self._folder(scene) for scene in scenes}

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a fragment, in its own frame [m].

        Raises:
            FileNotFoundError: no such fragment.
            ValueError: a broken file.
        """
        return read_fragment(find_fragment(self.folders[scene], f"cloud_bin_{index}"))

    def notes(self) -> list[str]:
        """How many pairs of the list were left out."""
        if not self._left_out:
            return []
        return [
            f"{self._left_out} of {self._left_out + len(self.pairs)} pairs of {self.path} overlap "
            f"by {self._overlap:g} or less and are left out"
        ]

    def _list(self, split: str) -> Path:
        for place in _LISTS:
            path = self.root / place.format(split=split)
            if path.is_file():
                return path
        places = ", ".join(place.format(split=split) for place in _LISTS)
        raise FileNotFoundError(
            f"3DMatch: {self.root} has no list of {split} pairs ({places}). {_STEPS}"
        )

    def _folder(self, scene: str) -> Path:
        for place in _CLOUDS:
            folder = self.root / place / scene
            if folder.is_dir():
                return folder
        raise FileNotFoundError(f"3DMatch: {self.root} has no fragments of {scene}. {_STEPS}")

"""FCGF's training pairs of 3DMatch: .npz clouds in the world's frame, listed by overlap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from pcnn.datasets.registration.fragment_files import read_fragment
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.errors import FileError
from pcnn.files.text import finite_numbers, numbered_lines
from pcnn.simulate.marker import is_simulated

OVERLAP = "0.30"  # of the published lists

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
    ) -> None:
        self.root = Path(root)
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
        return read_fragment(self.root / self.files[index])

    def notes(self) -> list[str]:
        """How many pairs were left out."""
        if not self._missing:
            return []
        return [f"{self._missing} of {self._listed} pairs are left out, as clouds are missing"]

    def _lists(self, scenes: Sequence[str] | None, without: tuple[str, ...]) -> list[Path]:
        found = []
        for scene in ("",) if scenes is None else scenes:
            lists = sorted(self.root.glob(f"{scene}*{OVERLAP}.txt"))
            lists = [path for path in lists if not path.name.startswith(without)]
            if not lists:
                raise FileNotFoundError(f"{self.root}: no list of pairs {scene}*{OVERLAP}.txt")
            found += lists
        return found

    def _place(self, file: str, places: dict[str, int]) -> int:
        if file not in places:
            places[file] = len(self.files)
            self.files.append(file)
        return places[file]

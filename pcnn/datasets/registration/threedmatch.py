"""3DMatch and 3DLoMatch: pairs of indoor fragments of the 8 test scenes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from pcnn.datasets.readers.fragments import find_fragment, read_fragment
from pcnn.datasets.registration.gt_files import read_scene
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.files.bounded import LIMIT
from pcnn.files.simulated import is_simulated

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

# below the root: Predator's archive, its test folder, scenes alone
_CLOUDS = ("indoor/test", "data/indoor/test", "data/test", "test", "")
# GeoTransformer's and Predator's trees, and files beside the data
_BENCHMARKS = ("metadata/benchmarks", "configs/benchmarks", "benchmarks")
_STEPS = (
    "Put Predator's fragments at ROOT/indoor/test/SCENE/cloud_bin_N.pth (or .ply) and gt.log, "
    "gt.info at ROOT/benchmarks/3DMatch/SCENE/"
)


class ThreeDMatch:
    """Test pairs of 3DMatch or 3DLoMatch, or of scenes in the same form.

    Fragments are looked for below ``root`` as Predator's archive has them, or one folder a scene;
    ground truth in ``benchmarks/LIST/SCENE/``, in ``SCENE-evaluation/`` (the original download) or
    in ``SCENE/`` itself (`pcnn make-gt`).

    Args:
        root: the folder.
        pair_list: ``3DMatch`` or ``3DLoMatch``.
        scenes: names; None takes every scene that is there, and `notes` says which are missing.
        benchmarks: folder that holds LIST/SCENE/gt.log; None looks below ``root``.
        cached_clouds: fragments kept in memory.
        max_gib: largest size of a file [GiB].

    Raises:
        FileNotFoundError: a folder or file is missing; the message says what belongs where.
        ValueError: an unknown list, or a file that breaks its format.
    """

    benchmark = "threedmatch"
    ground_truth = "gt.log"

    def __init__(
        self,
        root: str | Path,
        pair_list: str = "3DMatch",
        scenes: Sequence[str] | None = None,
        benchmarks: str | Path | None = None,
        cached_clouds: int = 16,
        max_gib: float = LIMIT,
    ) -> None:
        if pair_list not in LISTS:
            raise ValueError(f"pair_list must be one of {', '.join(LISTS)}, got {pair_list!r}")
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"3DMatch: {self.root} is not a folder. {_STEPS}")
        self.name = pair_list
        self.source_kind = "simulated" if is_simulated(self.root) else "real"
        self.folders = self._scene_folders(scenes)
        self._truths = {
            scene: self._truth(scene, None if benchmarks is None else Path(benchmarks))
            for scene in self.folders
        }
        self.pairs: Sequence[RegistrationPair] = [
            pair for scene, folder in self._truths.items() for pair in read_scene(folder, scene)
        ]
        self._max_gib = max_gib
        self._read = lru_cache(maxsize=cached_clouds)(self._read_cloud)

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a fragment [m].

        Raises:
            FileNotFoundError: no such fragment.
            ValueError: a broken file.
        """
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

    def _read_cloud(self, scene: str, index: int) -> Tensor:
        return read_fragment(
            find_fragment(self.folders[scene], f"cloud_bin_{index}"), self._max_gib
        )

    def _scene_folders(self, scenes: Sequence[str] | None) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for place in _CLOUDS:
            parent = self.root / place
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
                    f"3DMatch: {self.root} has no fragments of {', '.join(missing)}. {_STEPS}"
                )
        if not names:
            raise FileNotFoundError(
                f"3DMatch: {self.root} holds no folder with cloud_bin_N. {_STEPS}"
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
            f"3DMatch: no gt.log of {scene} in {', '.join(map(str, places))}. {_STEPS}"
        )

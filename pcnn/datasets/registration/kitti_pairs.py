"""KITTI odometry as pairs of scans about ten metres apart.

`pairs_of` is the rule behind the published lists of 1358, 180 and 555 pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcnn.datasets.registration.kitti_ground_truth import (
    LEGACY_CALIBRATION,
    IcpCache,
    check_ground_truth,
    odometry_transform,
    refined,
)
from pcnn.datasets.registration.pair_lists import read_kitti_list
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.datasets.semantic_kitti import read_scan
from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.simulated import kind_of
from pcnn.files.text import finite_numbers, numbered_lines
from pcnn.registration.transforms import not_rigid, rigid

POSES = ("odometry", "semantic")
_KEPT = 4  # scans in memory

#: Sequences of every split.
SPLITS = {"train": (0, 1, 2, 3, 4, 5), "val": (6, 7), "test": (8, 9, 10)}

#: Left out by every published list: (sequence, first frame, second frame).
EXCLUDED = frozenset({(8, 15, 58)})

MIN_DISTANCE = 10.0  # [m]
WINDOW = 100  # frames


def pairs_of(
    positions: NDArray[np.floating], distance: float = MIN_DISTANCE, window: int = WINDOW
) -> list[tuple[int, int]]:
    """Pairs of frames of a sequence, greedy and without overlap.

    From frame t the first frame of t..t+99 that is *more* than 10 m away is looked for; its
    predecessor is the partner, so partners are just *less* than 10 m apart. The next pair starts
    behind the partner. Where the window ends first, t moves by one.

    Source: FCGF, lib/data_loaders.py, KITTINMPairDataset, after 3DFeat-Net.
    """
    pairs = []
    frame, frames = 0, len(positions)
    while frame < frames:
        ahead = positions[frame : frame + window]
        far = np.linalg.norm(ahead - positions[frame], axis=1) > distance
        if not far.any():
            frame += 1
            continue
        partner = frame + int(far.argmax()) - 1
        if partner > frame:  # else the next frame is too far already: nothing pairs with itself
            pairs.append((frame, partner))
        frame = partner + 1
    return pairs


def pairs_between(
    positions: NDArray[np.floating], low: float, high: float, window: int = WINDOW
) -> list[tuple[int, int]]:
    """All pairs of frames of a sequence that lie a certain distance apart, for training."""
    pairs = []
    for frame in range(len(positions)):
        apart = np.linalg.norm(positions[frame + 1 : frame + window] - positions[frame], axis=1)
        found = np.flatnonzero((apart >= low) & (apart <= high))
        pairs += [(frame, frame + 1 + int(place)) for place in found]
    return pairs


class KITTIOdometry:
    """Pairs of a split, with refined ground truth."""

    benchmark = "kitti"

    def __init__(
        self,
        root: str | Path,
        split: str = "test",
        ground_truth: str = "legacy",
        poses: str = "odometry",
        metadata: str | Path | None = None,
        sequences: Sequence[int] | None = None,
        make_missing: bool = False,
        distances: Sequence[float] | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        check_ground_truth(ground_truth)
        if poses not in POSES:
            raise ValueError(f"poses must be one of {', '.join(POSES)}, got {poses!r}")
        if metadata is not None and (ground_truth, poses) != ("legacy", "odometry"):
            raise ValueError(
                "metadata carries legacy transforms of odometry poses, not "
                f"ground_truth={ground_truth} poses={poses}"
            )
        check_distances(distances, ground_truth)
        self.distances = None if distances is None else (float(distances[0]), float(distances[1]))
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"KITTI: {self.root} is not a folder")
        self.sequences = tuple(SPLITS[split] if sequences is None else sequences)
        others = set(self.sequences) - set(SPLITS[split])
        if others:
            raise ValueError(f"sequences {sorted(others)} do not belong to the {split} split")
        self.split = split
        self.name = f"KITTI odometry {split}"
        self.ground_truth = (
            ground_truth if poses == "odometry" else f"{ground_truth}, {poses} poses"
        )
        self.source_kind: str = kind_of(self.root)
        self.poses = poses
        self.cache = IcpCache(self.root, ground_truth, poses)
        self._read = lru_cache(maxsize=_KEPT)(self._read_cloud)
        self._camera: dict[int, Tensor] = {}
        if metadata is not None:
            path = Path(metadata)
            listed = read_kitti_list(path / f"{split}.pkl" if path.is_dir() else path)
            self.pairs: Sequence[RegistrationPair] = [
                pair for pair in listed if int(pair.scene) in self.sequences
            ]
            return
        self._camera = {sequence: self._read_poses(sequence) for sequence in self.sequences}
        self.pairs = list(self._cached_pairs(make_missing))

    def cloud(self, scene: str, index: int) -> Tensor:
        """Points [P, 3] float32 of a scan, in the velodyne's frame [m]."""
        return self._read(scene, index)

    def notes(self) -> list[str]:
        """Which sequences are missing, and what the ground truth is."""
        lines = [f"ground truth {self.ground_truth}"]
        if self.distances is not None:
            low, high = self.distances
            lines.append(f"all pairs {low:g} to {high:g} m apart, not the published ones")
        if len(self.sequences) < len(SPLITS[self.split]):
            lines.append(f"sequences {list(self.sequences)} of {list(SPLITS[self.split])} alone")
        return lines

    def fill_cache(self, track: Callable[[Sequence[RegistrationPair]], Iterable] = iter) -> int:
        """Refine every pair that the cache lacks; returns how many there were.

        An interrupted call has kept what it finished: the next one goes on there.
        """
        if self.cache.ground_truth == "odometry":
            raise ValueError("ground_truth=odometry is not refined; choose legacy or fixed")
        missing = [
            pair
            for pair in self.pairs
            if self.cache.get(int(pair.scene), pair.source, pair.target) is None
        ]
        for pair in track(missing):
            sequence = int(pair.scene)
            transform, alignment = refined(
                self.cloud(pair.scene, pair.source),
                self.cloud(pair.scene, pair.target),
                self._odometry(sequence, pair.source, pair.target),
                self.cache.ground_truth,
            )
            self.cache.put(sequence, pair.source, pair.target, transform, alignment)
        return len(missing)

    def _cached_pairs(self, make_missing: bool) -> Iterable[RegistrationPair]:
        missing = 0
        for sequence in self.sequences:
            index = 0
            for source, target in self._frames(sequence):
                if (sequence, source, target) in EXCLUDED:
                    continue
                refined_once = self.cache.ground_truth != "odometry"
                transform = self.cache.get(sequence, source, target) if refined_once else None
                if transform is None and refined_once:
                    missing += 1
                if transform is None:
                    transform = self._odometry(sequence, source, target)
                yield RegistrationPair(f"{sequence:02d}", target, source, transform, index=index)
                index += 1
        if missing and not make_missing:
            raise FileNotFoundError(
                f"KITTI: {missing} {self.split} pairs lack their {self.ground_truth} ground truth "
                f"in {self.cache.path(0, 0, 0).parent}; make it once: pcnn registration kitti-gt "
                f"{self.root} --split {self.split} --ground-truth {self.cache.ground_truth}"
            )

    def _frames(self, sequence: int) -> list[tuple[int, int]]:
        positions = self._camera[sequence][:, :3, 3].numpy()
        if self.distances is None:
            return pairs_of(positions)
        return pairs_between(positions, *self.distances)

    def _odometry(self, sequence: int, source: int, target: int) -> Tensor:
        poses = self._camera[sequence]
        if self.cache.ground_truth == "legacy":
            calibration = LEGACY_CALIBRATION
        else:
            calibration = read_calibration(
                self.root / "sequences" / f"{sequence:02d}" / "calib.txt"
            )
        return odometry_transform(calibration, poses[target], poses[source])

    def _read_cloud(self, scene: str, index: int) -> Tensor:
        path = self.root / "sequences" / scene / "velodyne" / f"{index:06d}.bin"
        if not path.is_file():
            raise FileNotFoundError(f"KITTI: {path}: no such scan")
        return torch.from_numpy(read_scan(path)[0])

    def _read_poses(self, sequence: int) -> Tensor:
        return read_poses(poses_file(self.root, sequence, self.poses))


def check_distances(distances: Sequence[float] | None, ground_truth: str) -> None:
    """Refuse distances that are none, or whose pairs would lack their ground truth."""
    if distances is None:
        return
    if len(distances) != 2 or not 0.0 < distances[0] <= distances[1]:
        raise ValueError(f"distances must be two, 0 < low <= high [m], got {list(distances)}")
    if ground_truth != "odometry":
        raise ValueError(
            "pairs of other distances than the published ones have transforms of the poses alone: "
            f"they go with ground_truth=odometry, not {ground_truth}"
        )


def poses_file(root: Path, sequence: int, poses: str = "odometry") -> Path:
    """File of the poses of a sequence, those of the odometry or of SemanticKITTI."""
    if poses == "semantic":
        return root / "sequences" / f"{sequence:02d}" / "poses.txt"
    return root / "poses" / f"{sequence:02d}.txt"


def read_poses(path: Path) -> Tensor:
    """Poses [F, 4, 4] float64 of a file with 12 numbers a line, one line a scan."""
    lines = numbered_lines(path)
    rows = [finite_numbers(path, number, line.split(), 12) for number, line in lines]
    for place, (number, _) in enumerate(lines, 1):
        if number != place:
            raise FileError(path, f"line {place}: empty, and every line is the pose of a scan")
    top = np.array(rows).reshape(-1, 3, 4)
    bottom = np.tile([0.0, 0.0, 0.0, 1.0], (len(rows), 1, 1))
    poses = torch.from_numpy(np.concatenate([top, bottom], 1))
    wrong = not_rigid(poses)
    if wrong is not None:
        with named(path, "file of poses"):
            rigid(poses[wrong], f"{path}: line {wrong + 1}")
    return poses


def read_calibration(path: Path) -> Tensor:
    """``Tr`` [4, 4] float64, velodyne to camera 0, of a sequence's calib.txt."""
    found: Tensor | None = None
    for number, line in numbered_lines(path):
        words = line.split()
        if words[0] not in ("Tr:", "Tr", "Tr_velo_to_cam:"):
            continue
        if found is not None:
            raise FileError(path, f"line {number}: Tr is given twice")
        top = np.array(finite_numbers(path, number, words[1:], 12)).reshape(3, 4)
        with named(path, "calibration"):
            found = rigid(np.vstack([top, [0.0, 0.0, 0.0, 1.0]]), f"{path}: line {number}, Tr")
    if found is None:
        raise FileError(path, "no line 'Tr:' with 12 numbers")
    return found

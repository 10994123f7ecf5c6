"""KITTI odometry as pairs of scans about ten metres apart.

`pairs_of` is the rule behind the published lists of 1358, 180 and 555 pairs.

There are three ground truths; name the one beside every figure. ``legacy``, odometry refined by
ICP, is what every published figure is measured against. It has two known defects. The velodyne's
place is one constant of a raw recording for all sequences. And ICP's result is composed on the
wrong side: ``M R``, where the cloud was moved by M before, so ``R M`` is right. A perfect method is
therefore up to 2.3 degrees and 0.7 m off on turning pairs. ``fixed`` takes ``Tr`` of the sequence's
calib.txt and composes as ICP moved. ``odometry`` takes ``Tr`` and no ICP, which is exact where
poses are (simulated drives) and off by decimetres where they are not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
from annotated_types import Len, MinLen
from numpy.typing import NDArray
from torch import Tensor

from pcnn.datasets.cloud_sets import DataSource, Published, Split
from pcnn.datasets.registration.pairs import RegistrationPair, read_kitti_list
from pcnn.datasets.semantic_kitti import read_scan
from pcnn.errors import FileError
from pcnn.files.bounded import named, read_npy
from pcnn.files.simulated import kind_of
from pcnn.files.text import finite_numbers, numbered_lines
from pcnn.files.whole_file import whole_file
from pcnn.ranges import Distance, Natural
from pcnn.registration.cloud_measures import voxel_firsts
from pcnn.registration.open3d_tools import icp
from pcnn.registration.transforms import inverse, not_rigid, rigid, transform_points

log = logging.getLogger(__name__)

_DRIVES = Published(
    "KITTI odometry",
    "kitti",
    "pcnn.simulate.streets.kitti.KITTI",
    "KITTI odometry: https://www.cvlibs.net/datasets/kitti/eval_odometry.php",
)

GroundTruth = Literal["legacy", "fixed", "odometry"]
GROUND_TRUTHS: tuple[str, ...] = get_args(GroundTruth)
_KEPT = 4  # scans in memory

#: Sequences of every split.
SPLITS = {"train": (0, 1, 2, 3, 4, 5), "val": (6, 7), "test": (8, 9, 10)}

#: Left out by every published list: (sequence, first frame, second frame).
EXCLUDED = frozenset({(8, 15, 58)})

MIN_DISTANCE = 10.0  # [m]
WINDOW = 100  # frames

ICP_DISTANCE = 0.2  # [m]
ICP_ITERATIONS = 200
ICP_VOXEL = 0.05  # [m]

#: Velodyne to camera 0 of the raw recording 2011_09_26, without rectification.
LEGACY_CALIBRATION = torch.tensor(
    [
        [7.533745e-03, -9.999714e-01, -6.166020e-04, -4.069766e-03],
        [1.480249e-02, 7.280733e-04, -9.998902e-01, -7.631618e-02],
        [9.998621e-01, 7.523790e-03, 1.480755e-02, -2.717806e-01],
        [0.0, 0.0, 0.0, 1.0],
    ],
    dtype=torch.float64,
)


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


def odometry_transform(calibration: Tensor, target: Tensor, source: Tensor) -> Tensor:
    """Transform between velodyne frames by camera poses: ``V⁻¹ P_target⁻¹ P_source V``."""
    return inverse(calibration) @ inverse(target) @ source @ calibration


def refined(source: Tensor, target: Tensor, odometry: Tensor, ground_truth: str) -> Tensor:
    """Refine an odometry transform by ICP and compose the two as the ground truth has it."""
    parts = [points[voxel_firsts(points, ICP_VOXEL)] for points in (source, target)]
    moved = transform_points(odometry, parts[0].double())
    start = torch.eye(4, dtype=torch.float64)
    step = icp(moved, parts[1], start, ICP_DISTANCE, ICP_ITERATIONS)
    return odometry @ step if ground_truth == "legacy" else step @ odometry


class KITTIOdometry:
    """Pairs of a split, with refined ground truth."""

    benchmark = "kitti"

    def __init__(
        self,
        root: str | Path,
        split: str = "test",
        ground_truth: str = "legacy",
        metadata: str | Path | None = None,
        sequences: Sequence[int] | None = None,
        distances: Sequence[float] | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        if ground_truth not in GROUND_TRUTHS:
            names = ", ".join(GROUND_TRUTHS)
            raise ValueError(f"ground_truth must be one of {names}, got {ground_truth!r}")
        if metadata is not None and ground_truth != "legacy":
            raise ValueError(f"metadata carries legacy transforms, not {ground_truth} ones")
        if distances is not None and (len(distances) != 2 or not 0 < distances[0] <= distances[1]):
            raise ValueError(f"distances must be two, 0 < low <= high [m], got {list(distances)}")
        if distances is not None and ground_truth != "odometry":
            raise ValueError(f"distances: such pairs have no {ground_truth} truth, but odometry")
        self.distances = distances
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"KITTI: {self.root} is not a folder")
        self.sequences = tuple(SPLITS[split] if sequences is None else sequences)
        others = set(self.sequences) - set(SPLITS[split])
        if others:
            raise ValueError(f"sequences {sorted(others)} do not belong to the {split} split")
        self.split = split
        self.name = f"KITTI odometry {split}"
        self.ground_truth = ground_truth
        self.source_kind: str = kind_of(self.root)
        self._read = lru_cache(maxsize=_KEPT)(self._read_cloud)
        if metadata is not None:
            path = Path(metadata)
            listed = read_kitti_list(path / f"{split}.pkl" if path.is_dir() else path)
            self.pairs: Sequence[RegistrationPair] = [
                pair for pair in listed if int(pair.scene) in self.sequences
            ]
            return
        self._camera = {s: read_poses(poses_file(self.root, s)) for s in self.sequences}
        self.pairs = list(self._refined_pairs())

    def cloud(self, scene: str, index: int) -> Tensor:
        return self._read(scene, index)

    def notes(self) -> list[str]:
        lines = [f"ground truth {self.ground_truth}"]
        if self.distances is not None:
            low, high = self.distances
            lines.append(f"all pairs {low:g} to {high:g} m apart, not the published ones")
        if len(self.sequences) < len(SPLITS[self.split]):
            all_of_it = list(SPLITS[self.split])
            lines.append(f"sequences {list(self.sequences)} of {all_of_it} alone")
        return lines

    def kept(self, sequence: int, source: int, target: int) -> Path:
        folder = "icp" if self.ground_truth == "legacy" else "icp_fixed"
        return self.root / folder / f"{sequence}_{source}_{target}.npy"

    def _refined_pairs(self) -> Iterator[RegistrationPair]:
        """Pairs by the rule; the truth of one is refined once, and kept below the root."""
        for sequence in self.sequences:
            poses = self._camera[sequence]
            positions = poses[:, :3, 3].numpy()
            frames = pairs_of(positions)
            if self.distances is not None:
                frames = pairs_between(positions, self.distances[0], self.distances[1])
            frames = [one for one in frames if (sequence, *one) not in EXCLUDED]
            for index, (source, target) in enumerate(frames):
                scene, path = f"{sequence:02d}", self.kept(sequence, source, target)
                if self.ground_truth != "odometry" and path.is_file():
                    transform = read_transform(path)
                else:
                    calibration = self._calibration(sequence)
                    transform = odometry_transform(calibration, poses[target], poses[source])
                    if self.ground_truth != "odometry":
                        log.info("refining the truth of %s, %d onto %d", scene, source, target)
                        clouds = self.cloud(scene, source), self.cloud(scene, target)
                        transform = refined(*clouds, transform, self.ground_truth)
                        with whole_file(path) as file:
                            np.save(file, transform.numpy())
                yield RegistrationPair(scene, target, source, transform, index=index)

    def _calibration(self, sequence: int) -> Tensor:
        if self.ground_truth == "legacy":
            return LEGACY_CALIBRATION
        return read_calibration(self.root / "sequences" / f"{sequence:02d}" / "calib.txt")

    def _read_cloud(self, scene: str, index: int) -> Tensor:
        path = self.root / "sequences" / scene / "velodyne" / f"{index:06d}.bin"
        return torch.from_numpy(read_scan(path)[0])


def read_transform(path: Path) -> Tensor:
    """Transform [4, 4] float64 of an ``.npy`` file."""
    with named(path, "transform; delete it"):
        return rigid(read_npy(path), str(path))


def poses_file(root: Path, sequence: int) -> Path:
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


@dataclass(frozen=True)
class KITTISets:
    """Pairs of KITTI odometry, or of simulated drives in its formats."""

    root: str | None = None  # folder of the set
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.Published.found
    data_dir: str = "data"  # folder for the default root and for simulated sets
    split: Split = "test"  # whose pairs are tested: train, val or test
    ground_truth: str = "legacy"  # legacy, fixed or odometry, of all splits
    metadata: str | None = None  # GeoTransformer's pickle of the tested split
    sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None  # of the tested split
    train_sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None  # of 0 to 5
    val_sequences: Sequence[Natural] | None = None  # of 6 and 7; None takes both
    distances: Annotated[Sequence[Distance], Len(2, 2)] | None = None
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator for test pairs
    simulate_train: Mapping[str, Any] | None = None  # the same for training and validation pairs
    benchmark = "kitti"

    def find(self, split: Split) -> KITTIOdometry:
        tested = split == "test"
        chosen = self.sequences if tested else getattr(self, f"{split}_sequences")
        # a file lists the tested split alone
        listed = self.metadata is not None and (tested or Path(self.metadata).is_dir())
        metadata = self.metadata if listed else None
        found = self._tested if tested else self._trained
        kind, ground_truth = self.split if tested else split, self.ground_truth
        if found.kind == "simulated":
            ground_truth, metadata = "odometry", None
            if chosen is None and kind in SPLITS:
                # a small set has no scans of some
                chosen = [s for s in SPLITS[kind] if poses_file(found.root, s).is_file()] or None
        distances = None if tested else self.distances
        return KITTIOdometry(found.root, kind, ground_truth, metadata, chosen, distances=distances)

    # each is found once: the log tells it once
    @cached_property
    def _tested(self) -> DataSource:
        return self._source(self.simulate, self.metadata is None)

    @cached_property
    def _trained(self) -> DataSource:
        listed = self.metadata is not None and Path(self.metadata).is_dir()
        return self._source(self.simulate_train, not listed)

    def _source(self, simulate: Mapping[str, Any] | None, with_poses: bool) -> DataSource:
        required = ["poses"] if with_poses else []
        return _DRIVES.found(self.root, self.source, self.data_dir, simulate, required)

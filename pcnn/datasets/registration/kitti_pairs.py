"""KITTI odometry as pairs of scans about ten metres apart.

`pairs_of` is the rule behind the published lists of 1358, 180 and 555 pairs. Name the ground truth
beside every figure. ``legacy`` is that of GeoTransformer's lists, odometry refined by ICP, which
every published figure is measured against. It has two known defects: the velodyne's place is one
constant of a raw recording for all sequences, and ICP's result is composed on the wrong side, so a
perfect method is up to 2.3 degrees and 0.7 m off on turning pairs. ``odometry`` takes ``Tr`` of the
sequence's calib.txt and no ICP, which is exact where poses are (simulated drives) and off by
decimetres where they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import MinLen
from numpy.typing import NDArray
from torch import Tensor

from pcnn.datasets.cloud_sets import Published, Split
from pcnn.datasets.registration.pairs import (
    PairDataset,
    PublishedPairs,
    RegistrationPair,
    read_list,
)
from pcnn.datasets.semantic_kitti import read_scan
from pcnn.errors import FileError
from pcnn.files.bounded import finite_numbers, named, numbered_lines
from pcnn.ranges import Distance, Natural
from pcnn.registration.transforms import inverse, not_rigid, rigid

_DRIVES = Published(
    "KITTI odometry",
    "kitti",
    "pcnn.simulate.streets.kitti.KITTI",
    "KITTI odometry: https://www.cvlibs.net/datasets/kitti/eval_odometry.php",
)

#: Sequences of every split.
SPLITS: Mapping[Split, Sequence[int]] = {
    "train": (0, 1, 2, 3, 4, 5),
    "val": (6, 7),
    "test": (8, 9, 10),
}

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


def odometry_pairs(
    root: Path, sequences: Sequence[int], distances: tuple[float, float] | None = None
) -> list[RegistrationPair]:
    """Pairs with transforms by the poses; of `distances` [m], or else by the published rule."""
    found = []
    for sequence in sequences:
        poses, scene = read_poses(poses_file(root, sequence)), f"{sequence:02d}"
        calibration = read_calibration(root / "sequences" / scene / "calib.txt")
        positions = poses[:, :3, 3].numpy()
        frames = pairs_of(positions) if distances is None else pairs_between(positions, *distances)
        frames = [one for one in frames if (sequence, *one) not in EXCLUDED]
        for index, (source, target) in enumerate(frames):
            # between velodyne frames by camera poses: V⁻¹ P_target⁻¹ P_source V
            camera = inverse(poses[target]) @ poses[source]
            transform = inverse(calibration) @ camera @ calibration
            found.append(RegistrationPair(scene, target, source, transform, index=index))
    return found


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
    lines = [(number, line.split()) for number, line in numbered_lines(path)]
    found = [one for one in lines if one[1][0] in ("Tr:", "Tr", "Tr_velo_to_cam:")]
    if len(found) != 1:
        raise FileError(path, f"{len(found)} lines 'Tr:' with 12 numbers; one is needed")
    ((number, words),) = found
    top = np.array(finite_numbers(path, number, words[1:], 12)).reshape(3, 4)
    with named(path, "calibration"):
        return rigid(np.vstack([top, [0.0, 0.0, 0.0, 1.0]]), f"{path}: line {number}, Tr")


@dataclass(frozen=True)
class KITTISets(PublishedPairs):
    """Pairs of KITTI odometry, or of simulated drives in its formats."""

    split: Split = "test"  # whose pairs are tested: train, val or test
    ground_truth: Literal["legacy", "odometry"] = "legacy"  # of all splits
    metadata: str | None = None  # folder of GeoTransformer's lists; None: the root
    sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None  # of the tested split
    train_sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None  # of 0 to 5
    val_sequences: Sequence[Natural] | None = None  # of 6 and 7; None takes both
    distances: tuple[Distance, Distance] | None = None
    benchmark = "kitti"
    published = _DRIVES

    def find(self, split: Split) -> PairDataset:
        found, tested = self.found(split), split == "test"
        kind = self.split if tested else split
        root, distances = found.root, None if tested else self.distances
        whole = tuple(SPLITS[kind])
        given = self.sequences if tested else getattr(self, f"{split}_sequences")
        chosen = whole if given is None else tuple(given)
        if not set(chosen) <= set(whole):
            raise ValueError(f"sequences {list(chosen)}: those of {kind} are {list(whole)}")
        truth = self.ground_truth if found.kind == "real" else "odometry"
        if truth == "odometry":
            if found.kind == "simulated" and given is None:
                # a small set has no scans of some
                chosen = tuple(s for s in whole if poses_file(root, s).is_file()) or whole
            pairs = odometry_pairs(root, chosen, distances)
        elif distances is not None:
            raise ValueError("distances: such pairs have no legacy truth; ground_truth=odometry")
        else:
            path = Path(self.metadata or root) / f"{kind}.pkl"
            if not path.is_file():
                raise FileNotFoundError(
                    f"KITTI: {path} is not there; the legacy truth of the {kind} pairs is in "
                    "GeoTransformer's lists (dataset.metadata), dataset.ground_truth=odometry "
                    "needs none"
                )
            pairs = [pair for pair in read_list(path) if int(pair.scene) in chosen]
        notes = [f"ground truth {truth}"]
        if distances is not None:
            apart = "all pairs {:g} to {:g} m apart, not the published ones"
            notes.append(apart.format(*distances))
        if len(chosen) < len(whole):
            notes.append(f"sequences {list(chosen)} of {list(whole)} alone")
        name, cloud = f"KITTI odometry {kind}", partial(read_cloud, root)
        return PairDataset(name, self.benchmark, truth, root, pairs, cloud, notes)


def read_cloud(root: Path, scene: str, index: int) -> Tensor:
    path = root / "sequences" / scene / "velodyne" / f"{index:06d}.bin"
    return torch.from_numpy(read_scan(path)[0])

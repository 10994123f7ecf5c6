"""SemanticKITTI: its layout ``root/sequences/XX/{velodyne,labels}``, classes and splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import MinLen

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_sets import CloudSets, DataSource, Published, Split, warn_left_out
from pcnn.datasets.semantic_kitti_labels import SEMANTIC_KITTI
from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.ranges import Natural

TRAIN_SEQUENCES = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10)
VAL_SEQUENCES = (8,)
"""The official split; the labels of the test sequences, 11 to 21, are not public."""

DOWNLOAD = (
    "Download 'velodyne laser data' (80 GB) from www.cvlibs.net/datasets/kitti/eval_odometry.php "
    "and the labels from www.semantic-kitti.org/dataset.html#download, unpack both into one "
    "folder so that it holds sequences/00/velodyne and sequences/00/labels, and give that folder "
    "as dataset.root"
)

_PUBLISHED = Published("SemanticKITTI", "kitti", "pcnn.simulate.streets.kitti.KITTI", DOWNLOAD)


_ROW = 16  # bytes of a point
_FARTHEST, _BRIGHTEST = 1e7, 65535.0  # that a number of these columns can be


@dataclass(frozen=True)
class _Scan:
    name: str
    points: Path
    labels: Path


class SemanticKITTI:
    channels = ("intensity",)  # what other formats call the remission
    label_map = SEMANTIC_KITTI

    def __init__(self, root: str | Path, sequences: Sequence[int]) -> None:
        self.root = Path(root)
        self._scans = _find(self.root, sequences)

    def __len__(self) -> int:
        return len(self._scans)

    def name(self, index: int) -> str:
        return self._scans[index].name

    def sources(self, index: int) -> Sequence[Path]:
        scan = self._scans[index]
        return [scan.points, scan.labels]

    def recipe(self) -> Mapping[str, object]:
        return {"set": "semantic_kitti", "root": str(self.root.resolve())}

    def read(self, index: int) -> Cloud:
        """Return the points of a scan: x, y, z [m], remission, train ids; no missing returns."""
        scan = self._scans[index]
        points, remission, rows, total = read_scan(scan.points)
        with named(scan.labels, ".label file"):
            words = np.fromfile(scan.labels, "<u4")
        if len(words) != total or scan.labels.stat().st_size != 4 * total:
            raise FileError(scan.labels, f"it is not of {total} points, 4 bytes each")
        train = self.label_map.encode(words[rows] & 0xFFFF, str(scan.labels))
        return Cloud(
            torch.from_numpy(points),
            torch.from_numpy(remission),
            torch.from_numpy(train),
            scan.name,
            str(scan.points),
            torch.from_numpy(rows),
            n_points_total=total,
        )


def read_scan(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Points [P, 3] float32 [m] and remission [P, 1] of a scan, their rows [P], rows of the file.

    Rows of NaN, or at (0, 0, 0), are missing returns and left out.
    """
    with named(path, ".bin file"):
        size = path.stat().st_size
        if not size or size % _ROW:
            raise FileError(path, f"{size} bytes are no whole number of points of {_ROW}")
        scan = np.fromfile(path, "<f4").reshape(-1, 4)
        x, y, z, remission = scan.T
        valid = (x != 0) | (y != 0) | (z != 0)
        for column in scan.T:
            valid &= np.isfinite(column)
        total, rows = len(scan), np.flatnonzero(valid)
        if not len(rows):
            raise FileError(path, f"all {total} points are missing returns (NaN, or at (0, 0, 0))")
        scan = scan if len(rows) == total else scan[rows]
        points, remission = np.ascontiguousarray(scan[:, :3]), scan[:, 3:].copy()
        far, low, high = np.abs(points).max(), remission.min(), remission.max()
        if far > _FARTHEST or low < 0 or high > _BRIGHTEST:
            found = f"coordinates of up to {far:.4g} m, remission of {low:.4g} to {high:.4g}"
            raise FileError(path, f"{found}: other columns than x, y, z, remission")
        return points, remission, rows, total


@dataclass(frozen=True)
class SemanticKITTISets(CloudSets):
    """The splits of SemanticKITTI, or simulated streets in their place."""

    root: str | None = None  # folder that holds sequences
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.Published.found
    data_dir: str = "data"  # folder for the default root and for simulated sets
    train_sequences: Annotated[Sequence[Natural], MinLen(1)] = TRAIN_SEQUENCES
    val_sequences: Sequence[Natural] = VAL_SEQUENCES  # sequences to validate on; may be empty
    test_sequences: Sequence[Natural] = VAL_SEQUENCES  # sequences to test on: labelled ones
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator
    unit = "scan"
    label_map = SEMANTIC_KITTI
    known_channels = SemanticKITTI.channels
    word_labels = True
    unit_intensity = True

    @property
    def tests_on_validation(self) -> bool:
        """True where the same sequences validate and test, as labels of 11 to 21 are hidden."""
        return tuple(self.test_sequences) == tuple(self.val_sequences)

    @cached_property
    def found(self) -> DataSource:
        given = self.root, self.source, self.data_dir
        return _PUBLISHED.found(*given, self.simulate, ["sequences"])

    def find(self, split: Split) -> SemanticKITTI | None:
        sequences = tuple(getattr(self, f"{split}_sequences"))
        folder = self.found.root / "sequences"
        if self.found.kind == "simulated":
            # a simulated set holds the sequences it was asked to have scans in
            sequences = tuple(s for s in sequences if (folder / f"{s:02d}").is_dir()) or sequences
        if not sequences:
            return None
        return SemanticKITTI(self.found.root, sequences)


def _find(root: Path, sequences: Sequence[int]) -> list[_Scan]:
    found: list[_Scan] = []
    unlabelled: list[str] = []
    for sequence in sequences:
        folder = root / "sequences" / f"{sequence:02d}"
        if not (folder / "velodyne").is_dir():
            lacks = f"{root}/sequences lacks {sequence:02d}/velodyne"
            raise FileNotFoundError(f"{lacks}. {DOWNLOAD}")
        points = {path.stem: path for path in sorted((folder / "velodyne").glob("*.bin"))}
        labels = {path.stem: path for path in sorted((folder / "labels").glob("*.label"))}
        for stem in labels.keys() - points.keys():
            raise FileNotFoundError(
                f"{folder / 'velodyne' / stem}.bin is missing, {labels[stem]} exists. {DOWNLOAD}"
            )
        for stem, path in points.items():
            name = f"{sequence:02d}/{stem}"
            if stem in labels:
                found.append(_Scan(name, path, labels[stem]))
            else:
                unlabelled.append(name)
    if not found:
        kind = "labelled scan (velodyne/*.bin with labels/*.label)"
        numbers = ", ".join(f"{sequence:02d}" for sequence in sequences)
        raise FileNotFoundError(f"no {kind} in {root}/sequences/{{{numbers}}}. {DOWNLOAD}")
    if unlabelled:
        warn_left_out(root, unlabelled, len(unlabelled) + len(found), "scans have no label")
    return found

"""SemanticKITTI in its official layout: ``root/sequences/XX/{velodyne,labels}``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import label_map
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.label_files import read_label_file
from pcnn.datasets.readers.points import read_points
from pcnn.datasets.sampler import evenly_spaced
from pcnn.datasets.samples import Cloud
from pcnn.datasets.transforms.augment import Augmentation

log = logging.getLogger(__name__)

TRAIN_SEQUENCES = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10)
VAL_SEQUENCES = (8,)
TEST_SEQUENCES = tuple(range(11, 22))
"""The official split; the labels of the test sequences are not public."""

DOWNLOAD = (
    "Download 'velodyne laser data' (80 GB) from www.cvlibs.net/datasets/kitti/eval_odometry.php "
    "and the labels from www.semantic-kitti.org/dataset.html#download, unpack both into one "
    "folder so that it holds sequences/00/velodyne and sequences/00/labels, and give that folder "
    "as dataset.root"
)

_NAMES_SHOWN = 20
_KITTI = Reading(("intensity",))


@dataclass(frozen=True)
class _Scan:
    name: str
    points: Path
    labels: Path | None


class SemanticKITTI(CloudDataset):
    """Labelled scans of some sequences.

    Args:
        root: folder that holds ``sequences``.
        sequences: numbers 0..21.
        voxel_size: edge of a voxel, or of a cell of native points [m].
        crop: horizontal radius about the sensor [m], or None.
        augment: random changes, or None.
        cache: folder for reduced clouds, or None.
        labels: ``official`` or ``spvnas_compat``; see `pcnn.datasets.labels.label_map`.
        labelled_only: leave out scans without a label file, and name them; False reads them with
            ``labels=None``.
        seed: selects the augmentations.
        limit: use that many scans, spread evenly over the set; None uses all.
        geometry: where the rows of a sample lie; None means voxels.

    Raises:
        FileNotFoundError: a sequence, a scan or all labels are missing.
    """

    def __init__(
        self,
        root: str | Path,
        sequences: Sequence[int],
        *,
        voxel_size: VoxelSize,
        crop: float | None = None,
        augment: Augmentation | None = None,
        cache: Path | None = None,
        labels: str = "official",
        labelled_only: bool = True,
        seed: int = 0,
        limit: int | None = None,
        geometry: Placement | None = None,
    ) -> None:
        self.root = Path(root)
        self.label_map = label_map(labels)
        self._labels = labels
        super().__init__(
            voxel_size=voxel_size,
            crop=crop,
            augment=augment,
            cache=cache,
            seed=seed,
            geometry=geometry,
        )
        self._scans = evenly_spaced(_find(self.root, sequences, labelled_only), limit)

    def __len__(self) -> int:
        return len(self._scans)

    def name(self, index: int) -> str:
        """Return sequence and scan, as in ``08/000123``."""
        return self._scans[index].name

    def sources(self, index: int) -> Sequence[Path]:
        """Return the scan's ``.bin`` and, where there is one, its ``.label``."""
        scan = self._scans[index]
        return [scan.points] if scan.labels is None else [scan.points, scan.labels]

    def recipe(self) -> Mapping[str, object]:
        """Return root and label map."""
        return {"set": "semantic_kitti", "root": str(self.root.resolve()), "labels": self._labels}

    def read(self, index: int) -> Cloud:
        """Return the points of a scan: x, y, z [m], remission, train ids; no missing returns.

        Raises:
            ValueError: a truncated or mis-sized file, numbers of other columns, an unknown raw id.
        """
        scan = self._scans[index]
        cloud = read_points(scan.points, scan.name, _KITTI)
        if scan.labels is None:
            return cloud
        words = read_label_file(scan.labels, cloud.n_points_total)
        train = torch.from_numpy(self.label_map.encode(words & 0xFFFF, str(scan.labels)))
        return replace(cloud, labels=train[cloud.point_index])


def _find(root: Path, sequences: Sequence[int], labelled_only: bool) -> list[_Scan]:
    found: list[_Scan] = []
    unlabelled: list[_Scan] = []
    absent = [s for s in sequences if not (root / f"sequences/{s:02d}/velodyne").is_dir()]
    if absent:
        raise FileNotFoundError(
            f"{root}/sequences lacks {', '.join(f'{s:02d}/velodyne' for s in absent)}. "
            f"dataset.allow_missing=true uses the sequences that are there. {DOWNLOAD}"
        )
    for sequence in sequences:
        folder = root / "sequences" / f"{sequence:02d}"
        points = {path.stem: path for path in sorted((folder / "velodyne").glob("*.bin"))}
        labels = {path.stem: path for path in sorted((folder / "labels").glob("*.label"))}
        for stem in labels.keys() - points.keys():
            raise FileNotFoundError(
                f"{folder / 'velodyne' / stem}.bin is missing, {labels[stem]} exists. {DOWNLOAD}"
            )
        for stem, path in points.items():
            scan = _Scan(f"{sequence:02d}/{stem}", path, labels.get(stem))
            (unlabelled if labelled_only and scan.labels is None else found).append(scan)
    if not found:
        kind = "labelled scan (velodyne/*.bin with labels/*.label)" if labelled_only else "scan"
        numbers = ", ".join(f"{sequence:02d}" for sequence in sequences)
        raise FileNotFoundError(f"no {kind} in {root}/sequences/{{{numbers}}}. {DOWNLOAD}")
    if unlabelled:
        names = ", ".join(scan.name for scan in unlabelled[:_NAMES_SHOWN])
        more = len(unlabelled) - _NAMES_SHOWN
        log.warning(
            "%s: %d of %d scans have no label and are left out: %s%s",
            root,
            len(unlabelled),
            len(unlabelled) + len(found),
            names,
            f" and {more} more" if more > 0 else "",
        )
    return found

"""Ground truth of KITTI pairs: odometry refined by ICP, in the published form and in the right one.

``legacy`` is what every published figure is measured against. It has two known defects. The
velodyne's place is one constant of a raw recording for all sequences. And ICP's result is composed
on the wrong side: ``M R``, where the cloud was moved by M before, so ``R M`` is right. A perfect
method is therefore up to 2.3 degrees and 0.7 m off on turning pairs. ``fixed`` takes ``Tr`` of the
sequence's calib.txt and composes as ICP moved. ``odometry`` takes ``Tr`` and no ICP, which is exact
where poses are (simulated drives) and off by decimetres where they are not. Name the one beside
every figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from pcnn.errors import FileError
from pcnn.files.arrays import read_npy, read_npz
from pcnn.files.bounded import named
from pcnn.files.whole_file import whole_file
from pcnn.registration.downsample import voxel_firsts
from pcnn.registration.open3d_tools import Alignment, icp, open3d_name
from pcnn.registration.transforms import inverse, rigid, transform_points

GroundTruth = Literal["legacy", "fixed", "odometry"]
GROUND_TRUTHS: tuple[str, ...] = get_args(GroundTruth)

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


def odometry_transform(calibration: Tensor, target: Tensor, source: Tensor) -> Tensor:
    """Transform between velodyne frames by camera poses: ``V⁻¹ P_target⁻¹ P_source V``."""
    return inverse(calibration) @ inverse(target) @ source @ calibration


def refined(
    source: Tensor, target: Tensor, odometry: Tensor, ground_truth: str
) -> tuple[Tensor, Alignment]:
    """Refine an odometry transform by ICP and compose the two as the ground truth has it."""
    check_ground_truth(ground_truth)
    parts = [points[voxel_firsts(points, ICP_VOXEL)] for points in (source, target)]
    moved = transform_points(odometry, parts[0].double())
    start = torch.eye(4, dtype=torch.float64)
    found = icp(moved, parts[1], start, ICP_DISTANCE, ICP_ITERATIONS)
    if ground_truth == "legacy":
        return odometry @ found.transform, found
    return found.transform @ odometry, found


def check_ground_truth(name: str) -> None:
    """Refuse an unknown ground truth."""
    if name not in GROUND_TRUTHS:
        raise ValueError(f"ground_truth must be one of {', '.join(GROUND_TRUTHS)}, got {name!r}")


@dataclass(frozen=True)
class IcpCache:
    """Refined transforms on disk.

    ``legacy`` entries are FCGF's own files, ``icp/8_0_14.npy``, so a cache made elsewhere serves;
    ``fixed`` ones carry ICP's fitness and whose ICP it was, ``icp_fixed/8_0_14.npz``.
    """

    root: Path  # folder of the data set
    ground_truth: str  # legacy or fixed
    poses: str = "odometry"  # odometry or semantic; the latter has a folder of its own

    def path(self, sequence: int, source: int, target: int) -> Path:
        """File of a pair."""
        legacy = self.ground_truth == "legacy"
        folder = "icp" if legacy else "icp_fixed"
        folder += "" if self.poses == "odometry" else f"_{self.poses}"
        suffix = "npy" if legacy else "npz"
        return self.root / folder / f"{sequence}_{source}_{target}.{suffix}"

    def get(self, sequence: int, source: int, target: int) -> Tensor | None:
        """Transform [4, 4] float64 of a pair; None when it is not there yet."""
        path = self.path(sequence, source, target)
        if not path.is_file():
            return None
        with named(path, "cache entry; delete it"):
            if path.suffix == ".npy":
                return rigid(read_npy(path), str(path))
            held = read_npz(path, ("transform",))
            if not held:
                raise FileError(path, "no array 'transform'; delete it")
            return rigid(held["transform"], str(path))

    def put(
        self, sequence: int, source: int, target: int, transform: Tensor, by: Alignment
    ) -> None:
        """Keep a transform; the file appears whole or not at all."""
        path = self.path(sequence, source, target)
        with whole_file(path) as file:
            if path.suffix == ".npy":
                np.save(file, transform.numpy())
            else:
                np.savez(
                    file,
                    transform=transform.numpy(),
                    fitness=by.fitness,
                    rmse=by.rmse,
                    solver=np.array(open3d_name()),
                )

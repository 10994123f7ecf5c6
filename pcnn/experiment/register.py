"""`pcnn.register`: two clouds, from files or memory, by a checkpoint or by FPFH."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from pcnn.datasets.registration.fragment_files import checked_points, read_fragment
from pcnn.experiment.trained_descriptor import of_checkpoint
from pcnn.registration.descriptor import Descriptor
from pcnn.registration.estimate import Solver
from pcnn.registration.fpfh import FPFH
from pcnn.registration.register import (
    MIN_INLIERS,
    Registration,
    default_settings,
    register_points,
)

Cloud = str | Path | np.ndarray | Tensor

#: Voxel of FPFH unless told otherwise [m]: rooms.
FPFH_VOXEL = 0.05


def register(
    source: Cloud,
    target: Cloud,
    checkpoint: str | Path | None = None,
    *,
    voxel_size: float | None = None,
    sensor_at_origin: bool = True,
    solver: Solver = "torch",
    icp_distance: float | None = None,
    min_inliers: int = MIN_INLIERS,
    min_overlap: float = 0.05,
    seed: int = 0,
    device: str = "cpu",
) -> Registration:
    """Estimate the rigid transform of a source cloud onto a target cloud.

    Without a checkpoint the descriptors are FPFH's (Open3D), and the result says so.

    Args:
        source: file (.ply, .pcd, .bin, .npy, .npz, .pth) or points [P, 3] [m].
        target: likewise.
        checkpoint: of a run with task=registration.
        voxel_size: of FPFH [m], 0.05 unless given; a checkpoint brings its own.
        sensor_at_origin: whether FPFH may take the origin of each cloud for its sensor's place.
        solver: ``torch``, ``open3d`` or ``svd``.
        icp_distance: refine by ICP within this distance [m]; None does not.
        min_inliers: matches that must agree.
        min_overlap: share of the source that must then lie near the target.
        seed: of samples and hypotheses.
        device: ``cpu`` or ``cuda``.

    Returns:
        The transform with its inliers and overlap.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unreadable, empty or not finite cloud; `NoOverlapError` when no transform is
            supported. There is never an identity in place of an answer.
    """
    clouds = [points_of(cloud, name) for cloud, name in ((source, "source"), (target, "target"))]
    descriptor = descriptor_of(checkpoint, voxel_size, device, sensor_at_origin)
    return register_points(
        clouds[0],
        clouds[1],
        descriptor,
        default_settings(descriptor.voxel_size, seed, solver),
        icp_distance=icp_distance,
        min_inliers=min_inliers,
        min_overlap=min_overlap,
        device=device,
    )


def points_of(cloud: Cloud, name: str) -> Tensor:
    """Points [P, 3] float32 of a file or an array, at least one of them.

    Raises:
        FileNotFoundError: no such file.
        ValueError: unreadable, empty, not finite, or too large for float32; the message names it.
    """
    if isinstance(cloud, str | Path):
        points, name = read_fragment(Path(cloud)), str(cloud)
    else:
        points = checked_points(cloud, name)
    if len(points) == 0:
        raise ValueError(f"{name}: the cloud is empty")
    return points


def descriptor_of(
    checkpoint: str | Path | None,
    voxel_size: float | None = None,
    device: str = "cpu",
    sensor_at_origin: bool = True,
) -> Descriptor:
    """The descriptor of a checkpoint, or FPFH without one.

    Raises:
        FileNotFoundError: no such checkpoint.
        ValueError: a checkpoint of another task, or a voxel size beside one.
    """
    if checkpoint is None:
        size = FPFH_VOXEL if voxel_size is None else voxel_size
        return FPFH(size, sensor_at_origin=sensor_at_origin)
    if voxel_size is not None:
        raise ValueError(f"{checkpoint} was trained at its own voxel size; leave voxel_size out")
    return of_checkpoint(checkpoint, device)

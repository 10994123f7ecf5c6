"""`pcnn.register`: two clouds, from files or memory, by trained descriptors or by FPFH."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from pcnn.datasets.registration.fragment_files import checked_points, read_fragment
from pcnn.experiment.shipped import Choice, chosen, fpfh_after
from pcnn.experiment.trained_descriptor import of_checkpoint
from pcnn.registration.descriptor import Descriptor
from pcnn.registration.estimate import Solver
from pcnn.registration.fpfh import FPFH
from pcnn.registration.register import (
    MIN_INLIERS,
    NETWORK_MIN_INLIERS,
    NoOverlapError,
    Registration,
    default_settings,
    register_points,
)

Cloud = str | Path | np.ndarray | Tensor


def register(
    source: Cloud,
    target: Cloud,
    model: str | Path | None = None,
    *,
    voxel_size: float | None = None,
    sensor_at_origin: bool = True,
    solver: Solver = "torch",
    icp_distance: float | None = None,
    min_inliers: int | None = None,
    min_overlap: float = 0.05,
    seed: int = 0,
    device: str = "cpu",
) -> Registration:
    """Estimate the rigid transform of a source cloud onto a target cloud.

    The result names the descriptors, and says when they were trained on simulated data.

    Args:
        source: file (.ply, .pcd, .bin, .npy, .npz, .pth) or points [P, 3] [m].
        target: likewise.
        model: ``interiors``, ``streets`` (shipped weights), ``fpfh``, or a checkpoint of a run with
            task=registration; None goes by the extent of the clouds (`pcnn.experiment.shipped`)
            and asks FPFH (Open3D) where shipped weights find no transform.
        voxel_size: of FPFH [m]; asks for FPFH where no model is named.
        sensor_at_origin: whether FPFH may take the origin of each cloud for its sensor's place.
        solver: ``torch``, ``open3d`` or ``svd``.
        icp_distance: refine by ICP within this distance [m]; None does not.
        min_inliers: matches that must agree; None: 25 of FPFH, 60 of a network, whose wrong matches
            agree more often.
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

    def estimated(choice: Choice) -> Registration:
        descriptor = descriptor_of(choice, device, sensor_at_origin)
        least = MIN_INLIERS if choice.weights is None else NETWORK_MIN_INLIERS
        found = register_points(
            clouds[0],
            clouds[1],
            descriptor,
            default_settings(descriptor.voxel_size, seed, solver),
            icp_distance=icp_distance,
            min_inliers=least if min_inliers is None else min_inliers,
            min_overlap=min_overlap,
            device=device,
        )
        return replace(found, reason=choice.reason)

    choice = chosen(model, clouds, voxel_size)
    try:
        return estimated(choice)
    except NoOverlapError as error:
        # shipped networks know clouds in the pose of a sensor; FPFH serves those that were turned
        if model is not None or choice.weights is None:
            raise
        try:
            return estimated(fpfh_after(choice, clouds))
        except ImportError:
            raise error from None
        except NoOverlapError as second:
            raise NoOverlapError(f"by {choice.weights.stem}: {error}; by FPFH: {second}") from None


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


def descriptor_of(choice: Choice, device: str = "cpu", sensor_at_origin: bool = True) -> Descriptor:
    """The descriptor that was chosen.

    Raises:
        ValueError: a torn file, or a checkpoint of another task.
    """
    if choice.weights is not None:
        return of_checkpoint(choice.weights, device)
    assert choice.voxel_size is not None  # FPFH comes with one
    return FPFH(choice.voxel_size, sensor_at_origin=sensor_at_origin)

"""Point-to-point ICP, on any device or by Open3D."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pcnn.registration.nearest import nearest_within
from pcnn.registration.open3d_tools import cloud_of, open3d, open3d_name
from pcnn.registration.rigid_fit import weighted_svd
from pcnn.registration.transforms import transform_points


@dataclass(frozen=True, eq=False)
class Alignment:
    """Where ICP ended."""

    transform: Tensor  # [4, 4] float64, source to target
    fitness: float  # share of source points with a target point within the distance
    rmse: float  # root mean square distance of those [m]; NaN when there is none
    iterations: int  # steps taken; -1 when the solver does not say
    solver: str = "torch"  # whose ICP it was


def icp(
    source: Tensor,  # [P, 3] [m]
    target: Tensor,  # [Q, 3] [m]
    start: Tensor,  # [4, 4] to begin with
    distance: float,
    iterations: int = 200,
    tolerance: float = 1e-6,
) -> Alignment:
    """Refine a transform: match every point with its nearest, fit, repeat.

    Source: Besl and McKay 1992; matches beyond ``distance`` are left out. Stops when fitness and
    RMSE change by less than ``tolerance``, as Open3D does.
    """
    transform = start.to(source.device, torch.float64)
    source, target = source.double(), target.double()
    last, steps = (-1.0, -1.0), 0
    while True:
        moved = transform_points(transform, source)
        gap, index = nearest_within(moved, target, distance)
        near = index >= 0
        found = int(near.sum())
        fitness = found / max(len(source), 1)
        rmse = float(gap[near].double().square().mean().sqrt()) if found else torch.nan
        # <=: clouds that lie on each other have an RMSE of 0
        settled = abs(fitness - last[0]) < tolerance and abs(rmse - last[1]) <= tolerance * rmse
        if settled or found < 3 or steps == iterations:
            return Alignment(transform, fitness, rmse, steps)
        transform = weighted_svd(moved[near], target[index[near]]) @ transform
        last, steps = (fitness, rmse), steps + 1


def open3d_icp(
    source: Tensor, target: Tensor, start: Tensor, distance: float, iterations: int = 200
) -> Alignment:
    """`icp` by Open3D, on the CPU, with its tolerance of 1e-6."""
    pipeline = open3d().pipelines.registration
    done = pipeline.registration_icp(
        cloud_of(source),
        cloud_of(target),
        distance,
        start.cpu().numpy().astype(np.float64),
        pipeline.TransformationEstimationPointToPoint(),
        pipeline.ICPConvergenceCriteria(max_iteration=iterations),
    )
    transform = torch.from_numpy(np.array(done.transformation))
    rmse = float(done.inlier_rmse) if done.fitness > 0 else torch.nan
    return Alignment(transform, float(done.fitness), rmse, -1, open3d_name())

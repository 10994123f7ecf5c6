"""Fast point feature histograms, the classical reference beside every learned descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pcnn.config.values import check_fields
from pcnn.messages import counted
from pcnn.ranges import Length
from pcnn.registration.cloud_measures import voxel_means
from pcnn.registration.descriptor import Described
from pcnn.registration.open3d_tools import cloud_of, open3d

FEWEST = 4  # points that a normal and a histogram need

_NORMAL_NEIGHBOURS, _FEATURE_NEIGHBOURS = 30, 100


@dataclass(frozen=True)
class FPFH:
    """Histograms [N, 33] of angles between the normals around a point, by Open3D.

    The cloud is thinned to the mean of every voxel first. The sign of a normal is chance unless the
    place of the sensor is known: published baselines leave it so, and telling it gives far more
    right matches.

    Source: Rusu, Blodow, Beetz 2009; radii as in Open3D's tutorial of global registration.
    """

    voxel_size: Length = 0.05  # [m]
    sensor_at_origin: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def name(self) -> str:
        """The method, its voxel, and whether normals point to the sensor."""
        return f"fpfh {self.voxel_size:g} m" + ", normals to the origin" * self.sensor_at_origin

    def __call__(self, clouds: Sequence[Tensor]) -> list[Described]:
        """Describe clouds [P, 3] [m], one after the other."""
        return [self._described(points) for points in clouds]

    def _described(self, points: Tensor) -> Described:
        o3d = open3d()
        thin = voxel_means(points.cpu(), self.voxel_size)
        if len(thin) < FEWEST:
            raise ValueError(
                f"{counted(len(points), 'point')} fill {counted(len(thin), 'voxel')}, FPFH needs "
                f"{FEWEST} (voxel_size)"
            )
        cloud = cloud_of(thin)
        search = o3d.geometry.KDTreeSearchParamHybrid
        cloud.estimate_normals(search(2 * self.voxel_size, _NORMAL_NEIGHBOURS))
        if self.sensor_at_origin:
            cloud.orient_normals_towards_camera_location(np.zeros(3))
        found = o3d.pipelines.registration.compute_fpfh_feature(
            cloud, search(5 * self.voxel_size, _FEATURE_NEIGHBOURS)
        )
        features = torch.from_numpy(np.array(found.data).T.copy()).float()
        return Described(thin.float(), features)

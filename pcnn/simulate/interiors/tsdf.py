"""Depth images fused by Open3D's truncated signed distance volume."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.errors import MissingPackageError
from pcnn.simulate.interiors.depth_camera import DepthCamera
from pcnn.simulate.interiors.fragment import Fusion
from pcnn.simulate.interiors.fusion import BOX_HIGH, BOX_LOW, VOXEL
from pcnn.simulate.mesh import Floats

_VOLUME_VOXEL = 0.006  # [m] as in the published fragments
_TRUNCATION = 5.0  # voxels
_LEAST_FRAMES = 3.0  # that saw a crossing
_BLOCKS = 12_000  # of 16^3 voxels; the volume grows when it needs more


def tsdf_points() -> Fusion:
    """Return the fusion by Open3D: a volume of 6 mm voxels, thinned to 2.5 cm by averaging.

    Raises:
        MissingPackageError: Open3D is not installed.
    """
    try:
        o3d: Any = import_module("open3d")  # its types are too narrow for arrays
    except (ImportError, OSError) as error:  # or a library of the system that it needs
        raise MissingPackageError(
            f"fusion='tsdf' needs Open3D, which cannot be imported: {error}"
        ) from error

    def fuse(camera: DepthCamera, images: list[Floats], poses: list[Floats]) -> NDArray[np.float64]:
        grid = o3d.t.geometry.VoxelBlockGrid(
            attr_names=("tsdf", "weight"),
            attr_dtypes=(o3d.core.float32, o3d.core.float32),
            attr_channels=((1,), (1,)),
            voxel_size=_VOLUME_VOXEL,
            block_resolution=16,
            block_count=_BLOCKS,
        )
        intrinsic = o3d.core.Tensor(
            [
                [camera.focal, 0.0, (camera.width - 1) / 2],  # Open3D counts pixel centres
                [0.0, camera.focal, (camera.height - 1) / 2],
                [0.0, 0.0, 1.0],
            ],
            o3d.core.float64,
        )
        for image, pose in zip(images, poses, strict=True):
            if not image.any():
                continue
            depth = o3d.t.geometry.Image(o3d.core.Tensor(image.astype(np.float32)))
            extrinsic = o3d.core.Tensor(np.linalg.inv(pose), o3d.core.float64)
            scale = (1.0, camera.far, _TRUNCATION)
            blocks = grid.compute_unique_block_coordinates(depth, intrinsic, extrinsic, *scale)
            grid.integrate(blocks, depth, intrinsic, extrinsic, *scale)
        found = grid.extract_point_cloud(weight_threshold=_LEAST_FRAMES)
        if not len(found.point):
            return np.zeros((0, 3))
        cloud = found.to_legacy()
        box = o3d.geometry.AxisAlignedBoundingBox(BOX_LOW, BOX_HIGH)
        return np.asarray(cloud.crop(box).voxel_down_sample(VOXEL).points, np.float64)

    return fuse

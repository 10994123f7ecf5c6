"""Depth images fused by Open3D's truncated signed distance volume."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.simulate.interiors.depth_camera import DepthCamera
from pcnn.datasets.simulate.interiors.fragment import Fusion
from pcnn.datasets.simulate.interiors.fusion import BOX_HIGH, BOX_LOW, VOXEL
from pcnn.datasets.simulate.mesh import Floats

_VOLUME_VOXEL = 0.006  # [m] as in the published fragments
_TRUNCATION = 0.03  # [m]


def tsdf_points() -> Fusion:
    """Return the fusion by Open3D: a volume of 6 mm voxels, thinned to 2.5 cm by averaging.

    Raises:
        ImportError: Open3D is not installed.
    """
    try:
        import open3d as o3d
    except ImportError as error:
        raise ImportError(
            "fusion='tsdf' needs Open3D: install it with `pip install pcnn[registration]`"
        ) from error

    def fuse(camera: DepthCamera, images: list[Floats], poses: list[Floats]) -> NDArray[np.float64]:
        volume = o3d.pipelines.integration.ScalableTSDFVolume(
            voxel_length=_VOLUME_VOXEL,
            sdf_trunc=_TRUNCATION,
            color_type=o3d.pipelines.integration.TSDFVolumeColorType.NoColor,
        )
        centre = ((camera.width - 1) / 2, (camera.height - 1) / 2)  # Open3D counts pixel centres
        intrinsic = o3d.camera.PinholeCameraIntrinsic(
            camera.width, camera.height, camera.focal, camera.focal, *centre
        )
        colour = o3d.geometry.Image(np.zeros((camera.height, camera.width, 3), np.uint8))  # type: ignore[call-overload]
        for image, pose in zip(images, poses, strict=True):
            frame = o3d.geometry.RGBDImage.create_from_color_and_depth(
                colour,
                o3d.geometry.Image(np.asarray(image, np.float32)),  # type: ignore[call-overload]
                depth_scale=1.0,
                depth_trunc=camera.far,
            )
            volume.integrate(frame, intrinsic, np.linalg.inv(pose))
        cloud = volume.extract_point_cloud()
        box = o3d.geometry.AxisAlignedBoundingBox(BOX_LOW, BOX_HIGH)
        return np.asarray(cloud.crop(box).voxel_down_sample(VOXEL).points, np.float64)

    return fuse

"""Depth images fused into one cloud: by averaging in voxels, or by Open3D."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pcnn.errors import MissingPackageError
from pcnn.simulate.hashing import cell_noise
from pcnn.simulate.mesh import Floats
from pcnn.simulate.rooms.depth_camera import DepthCamera

FusionName = Literal["samples", "means", "tsdf"]
#: fuses depth images [height, width] in metres (0 where there is none) and poses [4, 4], camera to
#: the frame of the fragment as far as the operator knows them, to points [N, 3] inside its box
Fusion = Callable[[DepthCamera, list[Floats], list[Floats]], Floats]

VOXEL = 0.025  # [m]
#: box of a fragment in the frame of its first camera: x right, y down, z forward [m]
BOX_LOW, BOX_HIGH = np.array([-1.5, -1.5, 0.5]), np.array([1.5, 1.5, 3.5])
_CELLS = np.rint((BOX_HIGH - BOX_LOW) / VOXEL).astype(np.int64)  # 120 each
_PARTS = 4  # a voxel is four parts of 6.25 mm wide, about the 6 mm of the published volumes

# a voxel counts as surface when it holds enough points, also in comparison with its neighbours:
# stray points beside a surface lie in voxels that hold few
_LEAST_POINTS = 3
_LEAST_SHARE = 0.02
# and a part of a voxel when it holds this share of the voxel's points
_LEAST_PART = 0.04

# of Open3D's volume
_VOLUME_VOXEL = 0.006  # [m] as in the published fragments
_TRUNCATION = 5.0  # voxels
_LEAST_FRAMES = 3.0  # that saw a crossing
_BLOCKS = 12_000  # of 16^3 voxels; the volume grows when it needs more


def fuse_by(name: FusionName) -> Fusion:
    """Return the fusion of a name."""
    if name not in get_args(FusionName):
        raise ValueError(f"fusion {name!r} is unknown; use 'samples', 'means' or 'tsdf'")
    return tsdf_points() if name == "tsdf" else voxel_means if name == "means" else voxel_samples


def _strongest_neighbour(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest count in the 3^3 box about every cell [X, Y, Z]."""
    best = count
    for axis in range(3):
        padded = np.pad(best, [(1, 1) if a == axis else (0, 0) for a in range(3)])
        size = count.shape[axis]
        parts = [np.take(padded, np.arange(start, start + size), axis) for start in range(3)]
        best = np.maximum(np.maximum(parts[0], parts[1]), parts[2])
    return best


def _surface(
    camera: DepthCamera, images: list[Floats], poses: list[Floats]
) -> tuple[Floats, NDArray[np.int64], int]:
    """Return the points of all images that lie in voxels on a surface, and those voxels."""
    rays = camera.rays()
    clouds, rows = [], []
    # image by image: what is computed of one stays in the caches
    for image, pose in zip(images, poses, strict=True):
        depth = image.reshape(-1)
        seen = np.flatnonzero(depth > 0)
        places = (rays.take(seen, 0) * depth[seen, None]) @ pose[:3, :3].T + pose[:3, 3]
        x, y, z = cells = np.floor((places - BOX_LOW) / VOXEL).astype(np.int64).T
        low, high = cells >= 0, cells < _CELLS[:, None]
        inside = np.flatnonzero(low[0] & low[1] & low[2] & high[0] & high[1] & high[2])
        clouds.append(places.take(inside, 0))
        rows.append(((x * _CELLS[1] + y) * _CELLS[2] + z)[inside])
    points, flat = np.concatenate(clouds), np.concatenate(rows)
    held = np.bincount(flat, minlength=int(np.prod(_CELLS))).reshape(_CELLS)
    dense = (held >= _LEAST_POINTS) & (held >= _LEAST_SHARE * _strongest_neighbour(held))
    number = np.cumsum(dense.reshape(-1)) - 1
    kept = dense.reshape(-1)[flat]
    return points[kept], number[flat[kept]], int(dense.sum())


def _means(points: Floats, groups: NDArray[np.int64], held: NDArray[np.int64]) -> Floats:
    """Average points [P, 3] by group [P]; groups that hold none give zeros."""
    sums = np.stack([np.bincount(groups, column, len(held)) for column in points.T], 1)
    return np.asarray(sums / np.maximum(held, 1)[:, None])


def voxel_means(camera: DepthCamera, images: list[Floats], poses: list[Floats]) -> Floats:
    """Fuse depth images to the mean of the points in each voxel of 2.5 cm, voxel by voxel."""
    points, voxels, count = _surface(camera, images, poses)
    return _means(points, voxels, np.bincount(voxels, minlength=count))


def voxel_samples(camera: DepthCamera, images: list[Floats], poses: list[Floats]) -> Floats:
    """Fuse depth images by averaging in voxels of 6.25 mm, and keep one of those in each of 2.5 cm.

    The published fragments are zero crossings of a volume of 6 mm voxels, thinned to one a voxel of
    2.5 cm: their points lie anywhere in their voxel and in the thickness that noise gives the
    surface. Means over 2.5 cm lie half as far again from each other and on a surface too thin.
    """
    points, voxels, count = _surface(camera, images, poses)
    fine = np.floor((points - BOX_LOW) / (VOXEL / _PARTS)).astype(np.int64) % _PARTS
    part = (fine[:, 0] * _PARTS + fine[:, 1]) * _PARTS + fine[:, 2]
    group = voxels * _PARTS**3 + part
    held = np.bincount(group, minlength=count * _PARTS**3)
    by_voxel = held.reshape(-1, _PARTS**3)  # [V, 64]
    enough = by_voxel >= np.maximum(_LEAST_PART * by_voxel.sum(1, keepdims=True), 1)
    # which part is kept is chance, but the same for the same input
    row, column = np.indices(by_voxel.shape)
    luck = cell_noise(np.stack([row, column, by_voxel], -1))
    chosen = np.argmax(np.where(enough, luck + 1, np.where(by_voxel > 0, luck, -1.0)), axis=1)
    means = _means(points, group, held)
    return np.ascontiguousarray(means[np.arange(count) * _PARTS**3 + chosen])


def tsdf_points() -> Fusion:
    """Return the fusion by Open3D: a volume of 6 mm voxels, thinned to 2.5 cm by averaging."""
    try:
        o3d: Any = import_module("open3d")  # its types are too narrow for arrays
    except (ImportError, OSError) as error:  # or a library of the system that it needs
        raise MissingPackageError(
            f"fusion='tsdf' needs Open3D, which cannot be imported: {error}"
        ) from error

    def fuse(camera: DepthCamera, images: list[Floats], poses: list[Floats]) -> Floats:
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

"""Depth images fused into one cloud by averaging in voxels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.simulate.interiors.cell_noise import cell_noise
from pcnn.simulate.interiors.depth_camera import DepthCamera
from pcnn.simulate.mesh import Floats

VOXEL = 0.025  # [m]
#: what a fragment covers in the frame of its first camera: x right, y down, z forward [m]
BOX_LOW, BOX_HIGH = np.array([-1.5, -1.5, 0.5]), np.array([1.5, 1.5, 3.5])
_CELLS = np.rint((BOX_HIGH - BOX_LOW) / VOXEL).astype(np.int64)  # 120 each
_PARTS = 4  # a voxel is four parts of 6.25 mm wide, about the 6 mm of the published volumes

# a voxel counts as surface when it holds enough points, also in comparison with its neighbours:
# stray points beside a surface lie in voxels that hold few
_LEAST_POINTS = 3
_LEAST_SHARE = 0.02
# and a part of a voxel when it holds this share of the voxel's points
_LEAST_PART = 0.04


@dataclass(frozen=True, eq=False)
class _Surface:
    """The points of all images that lie in voxels on a surface."""

    points: Floats  # [P, 3]
    voxels: NDArray[np.int64]  # [P] which of the V voxels on a surface
    count: int  # V


def _strongest_neighbour(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest count in the 3^3 box about every cell [X, Y, Z]."""
    best = count
    for axis in range(3):
        padded = np.pad(best, [(1, 1) if a == axis else (0, 0) for a in range(3)])
        size = count.shape[axis]
        parts = [np.take(padded, np.arange(start, start + size), axis) for start in range(3)]
        best = np.maximum(np.maximum(parts[0], parts[1]), parts[2])
    return best


def _surface(camera: DepthCamera, images: list[Floats], poses: list[Floats]) -> _Surface:
    rays = camera.rays()
    clouds = []
    for image, pose in zip(images, poses, strict=True):
        depth = image.reshape(-1)
        seen = depth > 0
        clouds.append((rays[seen] * depth[seen, None]) @ pose[:3, :3].T + pose[:3, 3])
    points = np.concatenate(clouds)
    cells = np.floor((points - BOX_LOW) / VOXEL).astype(np.int64)
    inside = ((cells >= 0) & (cells < _CELLS)).all(1)
    points, cells = points[inside], cells[inside]
    flat = (cells[:, 0] * _CELLS[1] + cells[:, 1]) * _CELLS[2] + cells[:, 2]
    held = np.bincount(flat, minlength=int(np.prod(_CELLS))).reshape(_CELLS)
    dense = (held >= _LEAST_POINTS) & (held >= _LEAST_SHARE * _strongest_neighbour(held))
    number = np.cumsum(dense.reshape(-1)) - 1
    kept = dense.reshape(-1)[flat]
    return _Surface(points[kept], number[flat[kept]], int(dense.sum()))


def _means(points: Floats, groups: NDArray[np.int64], held: NDArray[np.int64]) -> Floats:
    """Average points [P, 3] by group [P]; groups that hold none give zeros."""
    sums = np.stack([np.bincount(groups, column, len(held)) for column in points.T], 1)
    return np.asarray(sums / np.maximum(held, 1)[:, None])


def voxel_means(
    camera: DepthCamera, images: list[Floats], poses: list[Floats]
) -> NDArray[np.float64]:
    """Fuse depth images to the mean of the points in each voxel of 2.5 cm.

    Args:
        camera: that took them.
        images: [height, width] depth in metres each, 0 where there is none.
        poses: [4, 4] each, camera to the frame of the fragment, as far as the operator knows them.

    Returns:
        [N, 3] one point a voxel, in the order of the voxels, inside the box of a fragment.
    """
    surface = _surface(camera, images, poses)
    held = np.bincount(surface.voxels, minlength=surface.count)
    return _means(surface.points, surface.voxels, held)


def voxel_samples(
    camera: DepthCamera, images: list[Floats], poses: list[Floats]
) -> NDArray[np.float64]:
    """Fuse depth images by averaging in voxels of 6.25 mm, and keep one of those in each of 2.5 cm.

    The published fragments are zero crossings of a volume of 6 mm voxels, thinned to one a voxel of
    2.5 cm: their points lie anywhere in their voxel and in the thickness that noise gives the
    surface. Means over 2.5 cm lie half as far again from each other and on a surface too thin.

    Args:
        camera: that took them.
        images: [height, width] depth in metres each, 0 where there is none.
        poses: [4, 4] each, camera to the frame of the fragment, as far as the operator knows them.

    Returns:
        [N, 3] one point a voxel of 2.5 cm, in the order of the voxels, inside the box of a
        fragment.
    """
    surface = _surface(camera, images, poses)
    fine = np.floor((surface.points - BOX_LOW) / (VOXEL / _PARTS)).astype(np.int64) % _PARTS
    part = (fine[:, 0] * _PARTS + fine[:, 1]) * _PARTS + fine[:, 2]
    group = surface.voxels * _PARTS**3 + part
    held = np.bincount(group, minlength=surface.count * _PARTS**3)
    by_voxel = held.reshape(-1, _PARTS**3)  # [V, 64]
    enough = by_voxel >= np.maximum(_LEAST_PART * by_voxel.sum(1, keepdims=True), 1)
    # which part is kept is chance, but the same for the same input
    row, column = np.indices(by_voxel.shape)
    luck = cell_noise(np.stack([row, column, by_voxel], -1))
    chosen = np.argmax(np.where(enough, luck + 1, np.where(by_voxel > 0, luck, -1.0)), axis=1)
    means = _means(surface.points, group, held)
    return np.ascontiguousarray(means[np.arange(surface.count) * _PARTS**3 + chosen])

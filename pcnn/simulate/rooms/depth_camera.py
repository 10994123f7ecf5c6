"""A structured-light depth camera, and the fusion of its images into one cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pcnn.simulate.mesh import Floats, cell_noise
from pcnn.simulate.rooms.room import Room
from pcnn.simulate.simulator import drawn

# z [m] times the disparity in eighths of a pixel of the full 640 x 480 image
_DISPARITY = 351.3
_BASELINE = 0.075  # [m] between projector and camera

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


@dataclass(frozen=True)
class DepthCamera:
    """One unit. Every second pixel of 640 x 480 is simulated: 9 mm on a wall 2.5 m away."""

    disparity_noise: float = drawn((0.12, 0.25))  # [1/8 pixel] of one pixel alone
    smooth_noise: float = drawn((0.15, 0.40))  # [1/8 pixel] that a matching window shares
    lateral_noise: float = drawn((0.2, 0.4))  # [pixels]
    distortion: float = drawn((-0.006, 0.006))  # relative error of the range towards the corners
    bias: float = drawn((-0.002, 0.002))  # relative error of the range
    loss: float = drawn((0.7, 1.6))  # factor on the share of lost answers
    width: ClassVar[int] = 320
    height: ClassVar[int] = 240
    focal: ClassVar[float] = 262.5  # [pixels]
    near: ClassVar[float] = 0.5  # [m]
    far: ClassVar[float] = 4.5  # [m] answers beyond are lost

    def rays(self) -> Floats:
        """The directions of the pixels [height * width, 3] with z = 1, row by row."""
        v, u = np.mgrid[0 : self.height, 0 : self.width] + 0.5
        x, y = (u - self.width / 2) / self.focal, (v - self.height / 2) / self.focal
        return np.stack([x, y, np.ones_like(x)], -1).reshape(-1, 3)


def measure(rng: np.random.Generator, camera: DepthCamera, room: Room, pose: Floats) -> Floats:
    """Take one depth image.

    The disparity, 351.3 m / z in eighths of a pixel, is rounded to whole numbers after noise is
    added. An answer is lost out of range, in the projector's shadow, on shining or dark surfaces
    and at grazing incidence; most of these losses stay with the place on the surface.

    Source: A. Handa et al., A benchmark for RGB-D visual odometry, 3D reconstruction and SLAM
    (2014), Eq. 2 and 3, after J. T. Barron and J. Malik (2013); smooth noise, shadows and losses
    are added.
    """
    shape = (camera.height, camera.width)
    rays = camera.rays()
    length = np.linalg.norm(rays, axis=1)
    directions = (rays / length[:, None]) @ pose[:3, :3].T
    distance, face = room.caster.first_faces(pose[:3, 3], directions)
    met = face >= 0
    hit = np.where(met, face, 0)
    depth = (distance / length).reshape(shape).astype(np.float64)

    # a pixel reports a place a fraction of a pixel aside: edges fray
    aside = np.rint(rng.normal(0, camera.lateral_noise, (2, *shape))).astype(np.int64)
    row = np.clip(np.arange(shape[0])[:, None] + aside[0], 0, shape[0] - 1)
    column = np.clip(np.arange(shape[1])[None, :] + aside[1], 0, shape[1] - 1)
    frayed = depth[row, column]

    noise = camera.disparity_noise * rng.standard_normal(shape)
    coarse = rng.standard_normal((camera.height // 4, camera.width // 4))
    noise += camera.smooth_noise * np.kron(coarse, np.ones((4, 4)))
    luck = rng.random(shape)
    error = camera.bias + camera.distortion * (rays[:, :2] ** 2).sum(1).reshape(shape)
    with np.errstate(divide="ignore"):
        disparity = np.rint(_DISPARITY / (frayed * (1 + error)) + noise)
        measured = np.where(disparity > 0, _DISPARITY / disparity, 0.0)

    material = room.mesh.materials[hit]
    returns = np.array([paint.returns for paint in room.paints])[material]
    gloss = np.array([paint.gloss for paint in room.paints])[material]
    cosine = np.abs(np.einsum("rc,rc->r", room.normals[hit], directions))
    share = 1 - camera.loss * (1 - returns * np.minimum(cosine / gloss, 1.0) ** 2)
    place = pose[:3, 3] + directions * np.where(met, distance, 0.0)[:, None]
    stays = cell_noise(np.floor(place / 0.03))
    lost = 0.7 * stays + 0.3 * luck.reshape(-1) > share
    lost |= ~met
    # columns in the projector's picture: near things hide what lies further left there
    seen = np.arange(shape[1]) - camera.focal * _BASELINE / depth
    hidden = np.minimum.accumulate(seen[:, ::-1], axis=1)[:, ::-1]
    lost = lost.reshape(shape) | (seen > hidden + 0.75)
    lost |= (measured < camera.near) | (measured > camera.far)
    return np.where(lost, 0.0, measured)


def fuse(camera: DepthCamera, images: list[Floats], poses: list[Floats]) -> Floats:
    """Fuse depth images by averaging in voxels of 6.25 mm, and keep one of those in each of 2.5 cm.

    The published fragments are zero crossings of a volume of 6 mm voxels, thinned to one a voxel of
    2.5 cm: their points lie anywhere in their voxel and in the thickness that noise gives the
    surface. Means over 2.5 cm lie half as far again from each other and on a surface too thin.
    """
    rays, clouds = camera.rays(), []
    # image by image: what is computed of one stays in the caches
    for image, pose in zip(images, poses, strict=True):
        seen = np.flatnonzero(image.reshape(-1) > 0)
        places = rays[seen] * image.reshape(-1)[seen, None] @ pose[:3, :3].T + pose[:3, 3]
        clouds.append(places[((places >= BOX_LOW) & (places < BOX_HIGH)).all(1)])
    points = np.concatenate(clouds)
    fine = np.floor((points - BOX_LOW) / (VOXEL / _PARTS)).astype(np.int64)
    x, y, z = (fine // _PARTS).T
    voxel = (x * _CELLS[1] + y) * _CELLS[2] + z
    held = np.bincount(voxel, minlength=int(np.prod(_CELLS)))
    # stray points beside a surface lie in voxels that hold few, by comparison with their neighbours
    grown = held.reshape(_CELLS)
    for axis in range(3):
        grown = np.maximum(grown, np.maximum(np.roll(grown, 1, axis), np.roll(grown, -1, axis)))
    dense = (held >= _LEAST_POINTS) & (held >= _LEAST_SHARE * grown.reshape(-1))
    number = np.cumsum(dense) - 1
    kept = dense[voxel]
    points, (i, j, k) = points[kept], (fine[kept] % _PARTS).T
    count = int(dense.sum())
    group = number[voxel[kept]] * _PARTS**3 + (i * _PARTS + j) * _PARTS + k
    sizes = np.bincount(group, minlength=count * _PARTS**3)
    by_voxel = sizes.reshape(-1, _PARTS**3)  # [V, 64]
    enough = by_voxel >= np.maximum(_LEAST_PART * by_voxel.sum(1, keepdims=True), 1)
    # which part is kept is chance, but the same for the same input
    row, column = np.indices(by_voxel.shape)
    luck = cell_noise(np.stack([row, column, by_voxel], -1))
    chosen = np.argmax(np.where(enough, luck + 1, np.where(by_voxel > 0, luck, -1.0)), axis=1)
    sums = np.stack([np.bincount(group, axis, len(sizes)) for axis in points.T], 1)
    means = np.asarray(sums / np.maximum(sizes, 1)[:, None])
    return np.ascontiguousarray(means[np.arange(count) * _PARTS**3 + chosen])

"""What two fragments share, and what it says of an error of their pose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.simulate.mesh import Floats

#: points nearer than this belong together: one and a half voxels of 2.5 cm
MATCH_RADIUS = 0.0375
_INFORMATION_POINTS = 5000  # at most, as in the published files


@dataclass(frozen=True, eq=False)
class PointGrid:
    """Points sorted by the cells of a dense grid, for searches within a fixed radius."""

    points: Floats  # [N, 3] sorted by cell
    low: Floats  # [3] corner of the grid
    cell: float  # [m]
    shape: NDArray[np.int64]  # [3]
    starts: NDArray[np.int32]  # [cells + 1] first point of every cell
    near: NDArray[np.bool_]  # [cells] whether a cell within two steps holds a point
    crowd: int  # points of the fullest cell

    @staticmethod
    def build(points: Floats, cell: float = 0.025) -> PointGrid:
        """Sort a cloud [N, 3] of a few metres' extent: a dense table of its cells is made."""
        # empty cells on every side: searches need no test of the border
        low = (points.min(0) if len(points) else np.zeros(3)) - 4.5 * cell
        high = (points.max(0) if len(points) else np.zeros(3)) + 4.5 * cell
        shape = np.ceil((high - low) / cell).astype(np.int64)
        place = np.floor((points - low) / cell).astype(np.int64)
        flat = (place[:, 0] * shape[1] + place[:, 1]) * shape[2] + place[:, 2]
        held = np.bincount(flat, minlength=int(np.prod(shape)))
        starts = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)
        near = (held > 0).reshape(shape)
        for axis in range(3):
            steps = [np.roll(near, step, axis) for step in (-2, -1, 1, 2)]
            near = np.logical_or.reduce([near, *steps])
        order = np.argsort(flat, kind="stable")
        crowd = int(held.max(initial=0))
        return PointGrid(points[order], low, cell, shape, starts, near.reshape(-1), crowd)

    def within(self, queries: Floats, radius: float) -> NDArray[np.bool_]:
        """Tell for every query [Q, 3] whether some point lies nearer than a radius.

        Raises:
            ValueError: a radius of more than two cells.
        """
        if radius > 2 * self.cell:
            raise ValueError(f"radius {radius} m is more than two cells of {self.cell} m")
        answer = np.zeros(len(queries), np.bool_)
        place = np.floor((queries - self.low) / self.cell).astype(np.int64)
        rows = np.flatnonzero(((place >= 2) & (place < self.shape - 2)).all(1))
        flat = (place[rows, 0] * self.shape[1] + place[rows, 1]) * self.shape[2] + place[rows, 2]
        rows, flat = rows[self.near[flat]], flat[self.near[flat]]
        steps = np.stack(np.meshgrid(*3 * [np.arange(-2, 3)], indexing="ij"), -1).reshape(-1, 3)
        nearest = np.linalg.norm(np.maximum(np.abs(steps) - 1, 0), axis=1) * self.cell
        steps = steps[nearest < radius][np.argsort((steps**2).sum(1)[nearest < radius])]
        for dx, dy, dz in steps:
            cell = flat + (dx * self.shape[1] + dy) * self.shape[2] + dz
            start, end = self.starts[cell], self.starts[cell + 1]
            for turn in range(self.crowd):
                some = np.flatnonzero(start + turn < end)
                if not len(some):
                    break
                gap = queries[rows[some]] - self.points[start[some] + turn]
                answer[rows[some[np.einsum("rc,rc->r", gap, gap) < radius**2]]] = True
            # whoever has a neighbour need not look on
            left = ~answer[rows]
            rows, flat = rows[left], flat[left]
        return answer


def shared_points(reference: PointGrid, cloud: Floats, transform: Floats) -> Floats:
    """Return the points of a cloud [N, 3] that lie within 3.75 cm of a reference point.

    Args:
        reference: the other fragment, in its own frame.
        cloud: [N, 3] in its own frame.
        transform: [4, 4] from the cloud's frame to the reference's.
    """
    moved = cloud @ transform[:3, :3].T + transform[:3, 3]
    return cloud[reference.within(moved, MATCH_RADIUS)]


def information_matrix(points: Floats) -> Floats:
    """Weigh the six components of a pose's error by the points that two fragments share.

    The sum of G^T G over points p, G = [I | -[p]_x], for the error (t, rotation) of a transform
    into the frame of the points; at most 5000 points, evenly taken.

    Args:
        points: [M, 3] in the frame of fragment i, into which the transform maps fragment j.

    Returns:
        [6, 6] float64.

    Source: S. Choi, Q. Zhou and V. Koltun, Robust reconstruction of indoor scenes (2015), Eq. 10
    and the form of the published gt.info files of 3DMatch.
    """
    if len(points) > _INFORMATION_POINTS:
        points = points[np.linspace(0, len(points) - 1, _INFORMATION_POINTS).astype(np.int64)]
    jacobian = np.zeros((len(points), 3, 6))
    jacobian[:, :, :3] = np.eye(3)
    x, y, z = points.T
    jacobian[:, 0, 4], jacobian[:, 0, 5] = z, -y
    jacobian[:, 1, 3], jacobian[:, 1, 5] = -z, x
    jacobian[:, 2, 3], jacobian[:, 2, 4] = y, -x
    return np.einsum("nri,nrj->ij", jacobian, jacobian)

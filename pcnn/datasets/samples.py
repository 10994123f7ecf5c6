"""What a data set returns: a cloud, a sample on a geometry, a batch of samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from pcnn.datasets.point_batch import PointBatch
from pcnn.datasets.raw_points import RawPoints
from pcnn.geometry import Geometry
from pcnn.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points of one scan, as a file holds them or after a crop or an augmentation.

    Args:
        points: [P, 3] float32 [m].
        features: [P, F] float32: remission, or colour in 0..1; F may be 0.
        labels: [P] int64 train ids, or None where nothing is labelled.
        name: identifies the scan within its set, as in ``08/000123``.
        path: the file the points come from.
        point_index: [P] int64, each point's position in the file; None when the points are not
            those of a file (means of cells).
        n_points_total: points in the file; -1 means P.
        origin: where the cloud's origin lies in the coordinates of the file [m]; those are
            ``points + origin``.

    Raises:
        ValueError: shapes that do not fit together.
    """

    points: Tensor
    features: Tensor
    labels: Tensor | None
    name: str
    path: str
    point_index: Tensor | None = None
    n_points_total: int = -1
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        n = self.points.shape[0]
        if self.points.shape != (n, 3):
            raise ValueError(f"{self.path}: points must be [P, 3], got {tuple(self.points.shape)}")
        if self.features.ndim != 2 or self.features.shape[0] != n:
            raise ValueError(
                f"{self.path}: features must be [{n}, F], got {tuple(self.features.shape)}"
            )
        if self.labels is not None and self.labels.shape != (n,):
            raise ValueError(f"{self.path}: {n} points but {self.labels.numel()} labels")
        if self.n_points_total < 0:
            object.__setattr__(self, "n_points_total", n)

    @property
    def n_points(self) -> int:
        """Number of points P."""
        return self.points.shape[0]

    def select(self, rows: Tensor) -> Cloud:
        """Return the points of the given rows ([M] int64 in 0..P-1), knowing where they lay."""
        index = None if self.point_index is None else self.point_index[rows]
        labels = None if self.labels is None else self.labels[rows]
        return replace(
            self,
            points=self.points[rows],
            features=self.features[rows],
            labels=labels,
            point_index=index,
        )


@dataclass(frozen=True, eq=False)
class SegmentationSample:
    """A cloud on a geometry with what is needed to score every point of it.

    Args:
        geometry: its rows, voxels or native points; ``geometry.inverse`` [P] gives the row of
            every point.
        features: [N, 3 + F] float32: (x, y, z, features) of a native point, or their mean over the
            points of a voxel.
        labels: [N] int64: a native point's own, or the majority of a voxel's points; ``IGNORE``
            where none is labelled.
        points: [P, 3] float32 [m].
        point_labels: [P] int64 or None.
        name: as in `Cloud`.
        path: as in `Cloud`.
        point_index: as in `Cloud`.
        n_points_total: as in `Cloud`.
        own: the points' own features, where they may be placed anew; else None.
    """

    geometry: Geometry
    features: Tensor
    labels: Tensor
    points: Tensor
    point_labels: Tensor | None
    name: str
    path: str
    point_index: Tensor | None
    n_points_total: int
    own: RawPoints | None = None

    @classmethod
    def of(
        cls, geometry: Geometry, features: Tensor, labels: Tensor, cloud: Cloud
    ) -> SegmentationSample:
        """Make the sample of a cloud from its rows; arguments as in the class."""
        return cls(
            geometry,
            features,
            labels,
            cloud.points,
            cloud.labels,
            cloud.name,
            cloud.path,
            cloud.point_index,
            cloud.n_points_total,
        )


class SegmentationBatch(PointBatch):
    """Samples of a step.

    Args:
        tensor: network input; ``tensor.geometry.inverse`` [P] gives the row of every point.
        labels: [N] int64 labels of the rows.
        points: as in `PointBatch`, with ``point_offsets``, ``names``, ``paths`` and ``own``.
        point_labels: [P] int64, or None when no scan of the batch is labelled.
        point_offsets: ...
        names: ...
        paths: ...
        point_index: [P] int64, position of each point in its file, or None (see `Cloud`).
        n_points_total: B counts of points in the files.
        own: ...

    A batch without scans (B = 0, no points, an input of zero rows) occurs in evaluation on
    several ranks; see `pcnn.datasets.sampler.EvaluationSampler`.
    """

    def __init__(
        self,
        tensor: SparseTensor,
        labels: Tensor,
        points: Tensor,
        point_labels: Tensor | None,
        point_offsets: Tensor,
        names: tuple[str, ...],
        paths: tuple[str, ...],
        point_index: Tensor | None = None,
        n_points_total: tuple[int, ...] = (),
        own: RawPoints | None = None,
    ) -> None:
        super().__init__(tensor, points, point_offsets, names, paths, own)
        self.labels = labels
        self.point_labels = point_labels
        self.point_index = point_index
        self.n_points_total = n_points_total

    @property
    def n_points(self) -> int:
        """Number of points P of all scans."""
        return self.points.shape[0]

    @property
    def inverse(self) -> Tensor:
        """[P] int64: the row of every point."""
        assert self.tensor.geometry.inverse is not None  # geometries of samples come from points
        return self.tensor.geometry.inverse

    def scan(self, b: int) -> slice:
        """Return the slice of scan b in arrays over points."""
        first, last = self.point_offsets[b : b + 2].tolist()
        return slice(first, last)

    def full_scan(self, b: int, values: Tensor, fill: int) -> Tensor:
        """Spread values of this batch's points over all points of scan b's file.

        Args:
            b: scan, 0..B-1.
            values: [P] over the points of the batch.
            fill: value of the file's points that are not in the batch (outside the crop).

        Returns:
            [n_points_total[b]] in the order of the file, dtype and device of ``values``.

        Raises:
            ValueError: the batch comes from a cache, which does not know places in a file.
        """
        if self.point_index is None:
            raise ValueError(
                f"{self.names[b]}: this batch comes from a cache of training clouds, means of "
                f"cells or points without their places in the file; take it from an evaluation "
                f"loader"
            )
        part = self.scan(b)
        full = values.new_full((self.n_points_total[b],), fill)
        full[self.point_index[part]] = values[part]
        return full

    def tensors(self) -> list[Tensor]:
        """Every tensor beside the network's input."""
        beside = (self.labels, self.point_labels, self.point_index)
        return [*super().tensors(), *(t for t in beside if t is not None)]

    def _mapped(self, tensor: SparseTensor, move: Callable[[Tensor], Tensor]) -> SegmentationBatch:
        return SegmentationBatch(
            tensor,
            move(self.labels),
            move(self.points),
            None if self.point_labels is None else move(self.point_labels),
            move(self.point_offsets),
            self.names,
            self.paths,
            None if self.point_index is None else move(self.point_index),
            self.n_points_total,
            self._own_mapped(move),
        )

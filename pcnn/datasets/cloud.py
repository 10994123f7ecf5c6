"""A cloud: points with features and labels, before they lie on a geometry."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.datasets.labels import IGNORE


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points of one scan, as a file holds them or after a crop or an augmentation."""

    points: Tensor  # [P, 3] float32 [m]
    features: Tensor  # [P, F] float32: remission, or colour in 0..1; F may be 0
    labels: Tensor | None  # [P] int64 train ids, or None where nothing is labelled
    name: str  # identifies the scan within its set, as in 08/000123
    path: str  # the file the points come from
    point_index: Tensor | None = None  # [P] int64, each point's position in the file
    n_points_total: int = -1  # points in the file; -1 means P
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
        return self.points.shape[0]

    @property
    def inputs(self) -> Tensor:
        """[P, 3 + F]: x, y, z and the features."""
        alone = self.features.shape[1] == 0
        return self.points if alone else torch.cat([self.points, self.features], dim=1)

    @property
    def labels_or_ignore(self) -> Tensor:
        """[P] int64: the labels; ``IGNORE`` for all points where there are none."""
        labels, device = self.labels, self.points.device
        return torch.full((self.n_points,), IGNORE, device=device) if labels is None else labels

    def select(self, rows: Tensor) -> Cloud:
        """Return the points of rows ([M] int64 in 0..P-1) or of a mask [P]."""
        if rows.dtype == torch.bool:
            rows = rows.nonzero()[:, 0]

        def of(values: Tensor) -> Tensor:
            # a third of the time of indexing; of columns that lie one after another, as readers
            # leave them, ten times of it
            return values.contiguous().index_select(0, rows)

        return replace(
            self,
            points=of(self.points),
            features=of(self.features),
            labels=None if self.labels is None else of(self.labels),
            point_index=None if self.point_index is None else of(self.point_index),
        )


def joined_cloud(first: Cloud, second: Cloud) -> Cloud:
    """All points of both clouds in one frame, under the name of the first, of no one file."""
    if first.features.shape[1] != second.features.shape[1]:
        raise ValueError(f"{first.path} and {second.path} cannot be mixed: their features differ")
    labels = None
    if first.labels is not None or second.labels is not None:
        labels = torch.cat([one.labels_or_ignore for one in (first, second)])
    return replace(
        first,
        points=torch.cat([first.points, second.points]),
        features=torch.cat([first.features, second.features]),
        labels=labels,
        point_index=None,
    )


def turned(cloud: Cloud, angle: float, axis: int = 2) -> Cloud:
    cos, sin = math.cos(angle), math.sin(angle)
    parts = list(cloud.points.unbind(1))
    u, v = parts[(axis + 1) % 3], parts[(axis + 2) % 3]
    # element by element: a matrix product may round differently with another number of threads
    parts[(axis + 1) % 3], parts[(axis + 2) % 3] = u * cos - v * sin, u * sin + v * cos
    return replace(cloud, points=torch.stack(parts, dim=1))

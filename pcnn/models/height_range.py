"""The plainest classifier of LiDAR points: how high, how far away."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Heights against the sensor [m] and horizontal distances [m] that have bins of their own; what
#: lies beyond belongs to the outermost ones.
HEIGHTS = (-4.0, 8.0)
RANGES = (0.0, 80.0)


class HeightRange(nn.Module):
    """The commonest class among training points of similar height and range: a histogram.

    A reference for networks, trained on the same scans: a network that is right more often has
    learned from shapes. A bin without training points has the commonest class of its height, and
    without any at that height the commonest of all.

    Args:
        out_channels: classes C.
        height_step: edge of a bin [m].
        range_step: edge of a bin [m].
    """

    counts: Tensor  # [H, R, C] int64

    def __init__(
        self, out_channels: int, height_step: float = 0.1, range_step: float = 1.0
    ) -> None:
        super().__init__()
        self.steps = (height_step, range_step)
        sizes = [
            round((high - low) / step)
            for (low, high), step in zip((HEIGHTS, RANGES), self.steps, strict=True)
        ]
        zeros = torch.zeros(*sizes, out_channels, dtype=torch.int64)
        self.register_buffer("counts", zeros)

    def update(self, points: Tensor, labels: Tensor) -> None:
        """Count training points.

        Args:
            points: [P, 3] [m], origin at the sensor.
            labels: [P] int64; what is not in 0..C-1 does not count.
        """
        classes = self.counts.shape[2]
        known = (labels >= 0) & (labels < classes)
        cells = self._bins(points[known]) * classes + labels[known]
        self.counts += torch.bincount(cells, minlength=self.counts.numel()).view_as(self.counts)

    def forward(self, points: Tensor) -> Tensor:
        """Class of every point [P, 3], [P] int64."""
        return self._table()[self._bins(points)]

    def _bins(self, points: Tensor) -> Tensor:
        """[P] int64: number of the bin of every point, heights outermost."""
        values = (points[:, 2], torch.hypot(points[:, 0], points[:, 1]))
        places = [
            ((value.double() - low) / step).floor().clamp(0, size - 1).long()
            for value, (low, _), step, size in zip(
                values, (HEIGHTS, RANGES), self.steps, self.counts.shape, strict=False
            )
        ]
        return places[0] * self.counts.shape[1] + places[1]

    def _table(self) -> Tensor:
        """[H * R] int64: the class of every bin."""
        counts = self.counts.double()
        heights = counts.sum(1, keepdim=True)  # [H, 1, C]
        everything = heights.sum(0, keepdim=True)  # [1, 1, C]
        # shares below one, so that they decide only where no points do
        scores = counts
        for level, weight in ((heights, 1e-3), (everything, 1e-6)):
            scores = scores + weight * level / level.sum(2, keepdim=True).clamp(min=1)
        return scores.flatten(0, 1).argmax(1)

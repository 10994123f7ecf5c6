"""A registered pair of clouds as pictures show it, and its matches, drawn as lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pcnn.metrics.registration.errors import match_distances

RIGHT, WRONG = "#1f9d55", "#d64545"
MOST = 300  # lines; more hide each other
POINTS = 40_000  # of each cloud

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class DrawnMatches:
    """Matched points of two clouds."""

    source: NDArray[np.floating]  # [K, 3] in the source's frame [m]
    target: NDArray[np.floating]  # [K, 3] their partners, in the target's
    right: NDArray[np.bool_]  # [K] which matches are right

    @classmethod
    def of(cls, source: Tensor, target: Tensor, truth: Tensor, distance: float) -> DrawnMatches:
        """Matches; right are those within a distance [m] under the true transform."""
        right = match_distances(source, target, truth) < distance
        return cls(source.cpu().numpy(), target.cpu().numpy(), right.cpu().numpy())

    def __len__(self) -> int:
        return len(self.right)


@dataclass(frozen=True, eq=False)
class ShownPair:
    """Two clouds with an estimated transform, as pictures and W&B show them."""

    name: str  # of the pair, the heading
    source: NDArray[np.floating]  # [N, 3] in the source's frame [m]
    target: NDArray[np.floating]  # [M, 3] in the target's frame [m]
    transform: NDArray[np.floating] | None  # [4, 4], source to target; None where none was found
    facts: str = ""  # errors and right matches in a line
    matches: DrawnMatches | None = None  # None or none at all: they are not drawn
    simulated: bool = False  # whether the clouds are simulated, which is then written large

    @classmethod
    def of(
        cls, name: str, source: Tensor, target: Tensor, transform: Tensor | None, **more: Any
    ) -> ShownPair:
        """The pair of tensors on any device; arguments as in the class, NaN is no transform."""
        found = None if transform is None or bool(transform.isnan().any()) else transform
        here, there = (points.detach().float().cpu().numpy() for points in (source, target))
        return cls(name, here, there, None if found is None else found.cpu().numpy(), **more)

    @property
    def placed(self) -> NDArray[np.floating] | None:
        """The source moved by the transform, [N, 3]; None where there is none."""
        if self.transform is None:
            return None
        return self.source @ self.transform[:3, :3].T + self.transform[:3, 3]


def draw_matches(
    place: Any,
    source: NDArray[np.floating],  # [N, 3] [m], drawn left
    target: NDArray[np.floating],  # [M, 3] [m], drawn right
    matches: DrawnMatches,
    colours: tuple[Colour, Colour],
) -> None:
    """Draw two clouds side by side, along the axis they are thinnest in, with lines between them.

    Both lie in their own frames: lines of right matches need not be parallel. At most 300 matches
    are drawn, an even choice of all; the title counts all of them.
    """
    flat = [_Flat.of(cloud) for cloud in (source, target)]
    left, laid = flat[0](source), flat[1](target)
    shift = [left[:, 0].max() - laid[:, 0].min() + 0.1 * np.ptp(left[:, 0]), 0.0]
    laid += shift
    for points, colour in ((left, colours[0]), (laid, colours[1])):
        some = points[:: -(-len(points) // POINTS)]
        place.scatter(
            some[:, 0], some[:, 1], s=1.0, color=tuple(c / 255 for c in colour), linewidths=0
        )
    every = slice(None, None, -(-len(matches) // MOST))
    ends = np.stack([flat[0](matches.source), flat[1](matches.target) + shift], 1)[every]
    right = matches.right[every]
    for wanted, shade, front in ((False, WRONG, 2), (True, RIGHT, 3)):
        lines = ends[right == wanted].transpose(2, 1, 0)  # [x or y, end, line]
        place.plot(*lines, color=shade, linewidth=0.4, alpha=0.6, zorder=front)
    place.set_title(
        f"matches, {int(matches.right.sum())} of {len(matches)} right (green)",
        loc="left",
        fontsize=12,
    )
    place.set_aspect("equal")
    place.set_axis_off()


@dataclass(frozen=True)
class _Flat:
    """Projection along the axis a cloud is thinnest in, the widest axis first, about its mean."""

    axes: NDArray[np.intp]  # [2]
    middle: NDArray[np.float64]  # [2]

    @classmethod
    def of(cls, cloud: NDArray[np.floating]) -> _Flat:
        axes = np.argsort(-np.ptp(cloud, axis=0), kind="stable")[:2]
        return cls(axes, cloud[:, axes].astype(np.float64).mean(0))

    def __call__(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        flat: NDArray[np.float64] = points[:, self.axes].astype(np.float64) - self.middle
        return flat

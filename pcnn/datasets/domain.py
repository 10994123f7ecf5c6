"""Statistics of the clouds of a training, and whether another cloud is like them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

#: How far beyond the range of the training clouds a figure may lie, as a factor.
_BEYOND = 2.0
#: Points that are looked at for extent and channels.
_SOME = 100_000


@dataclass(frozen=True)
class Domain:
    """Ranges over some training clouds; smallest and largest.

    Args:
        extent: longest side of the box that holds the middle nine tenths of the points [m].
        height: the same of the vertical [m].
        density: points in a voxel that holds any, the mean of a cloud.
        channels: by name, the mean of a channel.
    """

    extent: tuple[float, float]
    height: tuple[float, float]
    density: tuple[float, float]
    channels: Mapping[str, tuple[float, float]]

    @classmethod
    def of(
        cls,
        clouds: Sequence[tuple[np.ndarray, np.ndarray]],
        names: Sequence[str],
        voxel_size: Any,
    ) -> Domain | None:
        """Measure clouds; None where there are none, or none with points.

        Args:
            clouds: positions [P, 3] [m] and channels [P, F] of each.
            names: of the channels.
            voxel_size: of the network [m].
        """
        rows = [figures(places, channels, voxel_size) for places, channels in clouds if len(places)]
        if not rows:
            return None
        table = np.array(rows)  # [clouds, 3 + F]
        ranges = [
            (float(low), float(high)) for low, high in zip(table.min(0), table.max(0), strict=True)
        ]
        extent, height, density, *rest = ranges
        return cls(extent, height, density, dict(zip(names, rest, strict=True)))

    @classmethod
    def of_config(cls, node: Any) -> Domain | None:
        """The statistics that a configuration holds; None where it holds none."""
        if not node:
            return None
        pairs = {name: (float(node[name][0]), float(node[name][1])) for name in _RANGES}
        channels = {str(n): (float(r[0]), float(r[1])) for n, r in node["channels"].items()}
        return cls(**pairs, channels=channels)

    def as_config(self) -> dict[str, Any]:
        """Plain values for a configuration, of four digits."""
        kept = asdict(self)
        plain = {name: [float(f"{value:.4g}") for value in kept[name]] for name in _RANGES}
        channels = {
            name: [float(f"{value:.4g}") for value in pair] for name, pair in self.channels.items()
        }
        return {**plain, "channels": channels}

    def doubts(self, places: np.ndarray, channels: np.ndarray, voxel_size: Any) -> list[str]:
        """Say in what a cloud is unlike the clouds of the training.

        Args:
            places: [P, 3] [m].
            channels: [P, F].
            voxel_size: of the network [m].
        """
        if not len(places):
            return []
        extent, height, density, *means = figures(places, channels, voxel_size)
        told = [
            ("is {:.3g} m wide", extent, self.extent),
            ("is {:.3g} m high", height, self.height),
            ("has {:.3g} points a voxel", density, self.density),
        ]
        told += [
            (f"has a mean {name} of {{:.3g}}", mean, pair)
            for mean, (name, pair) in zip(means, self.channels.items(), strict=False)
        ]
        return [
            f"this cloud {words.format(value)}, those of the training {low:.3g} to {high:.3g}: "
            "labels may be worse than elsewhere"
            for words, value, (low, high) in told
            if not low / _BEYOND <= value <= high * _BEYOND
        ]


_RANGES = ("extent", "height", "density")


def figures(places: np.ndarray, channels: np.ndarray, voxel_size: Any) -> list[float]:
    """Extent and height [m], points a voxel, and the means of the channels of a cloud."""
    some = slice(None, None, -(-len(places) // _SOME))
    low, high = np.quantile(places[some], [0.05, 0.95], axis=0)
    cells = np.floor((places - places.min(axis=0)) / np.asarray(voxel_size)).astype(np.int64)
    span = cells.max(axis=0) + 1
    keys = (cells[:, 0] * span[1] + cells[:, 1]) * span[2] + cells[:, 2]
    density = len(places) / len(np.unique(keys))
    sides = high - low
    means = channels[some].mean(axis=0, dtype=np.float64) if channels.size else []
    return [float(sides.max()), float(sides[2]), density, *map(float, means)]

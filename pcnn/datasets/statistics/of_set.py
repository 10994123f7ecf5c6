"""The statistics of a set of clouds, as numbers in a JSON file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pcnn.datasets.statistics.clouds import CloudStatistics, Histogram, earth_movers_distance
from pcnn.errors import FileError
from pcnn.files.text import read_json

FORMAT = "pcnn statistics 1"

_HISTOGRAMS = ("range", "height", "remission", "nearest")


@dataclass(frozen=True, eq=False)
class SetStatistics:
    """Numbers of a set.

    Args:
        name: of the set.
        source: ``real`` or ``simulated``.
        points: [clouds] points of each cloud.
        neighbours: by voxel size, [clouds] mean neighbours of a voxel of each cloud.
        histograms: range, height, nearest and, where the files hold it, remission; all clouds
            together.
        rings: by name (points, elevation [deg], range [m]) the mean of each ring over the clouds
            with the usual number of rings; None where clouds show none.
        missing: share of firings without a return; None without rings.
        classes: share of the labelled points by class; None without labels.
    """

    name: str
    source: Literal["real", "simulated"]
    points: list[int]
    neighbours: dict[float, list[float]]
    histograms: dict[str, Histogram]
    rings: dict[str, list[float]] | None
    missing: float | None
    classes: dict[str, float] | None

    def distances(self, other: SetStatistics) -> dict[str, float]:
        """Return the earth mover's distances to another set, by histogram both have."""
        return {
            name: earth_movers_distance(histogram, other.histograms[name])
            for name, histogram in self.histograms.items()
            if name in other.histograms
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "format": FORMAT,
            "name": self.name,
            "source": self.source,
            "points": self.points,
            "neighbours": {
                f"{size:g}": [round(value, 4) for value in values]
                for size, values in self.neighbours.items()
            },
            "rings": self.rings,
            "missing": self.missing,
            "classes": self.classes,
            "histograms": {name: h.to_json() for name, h in self.histograms.items()},
        }

    @staticmethod
    def from_json(content: Any) -> SetStatistics:
        """Read what `to_json` gave.

        Raises:
            ValueError: not such content.
        """
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"not statistics of a set: no entry 'format' of {FORMAT!r}")
        try:
            return SetStatistics(
                name=str(content["name"]),
                source=content["source"],
                points=[int(n) for n in content["points"]],
                neighbours={
                    float(size): [float(v) for v in values]
                    for size, values in content["neighbours"].items()
                },
                histograms={n: Histogram.from_json(h) for n, h in content["histograms"].items()},
                rings=content["rings"],
                missing=content["missing"],
                classes=content["classes"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"statistics of a set lack or garble {error}") from error


def set_statistics(
    name: str, source: Literal["real", "simulated"], clouds: Iterable[CloudStatistics]
) -> SetStatistics:
    """Put the statistics of clouds together.

    Raises:
        ValueError: no cloud with a point.
    """
    held = [cloud for cloud in clouds if cloud.points]
    if not held:
        raise ValueError(f"{name}: no cloud holds a point")
    histograms = {}
    for kind in _HISTOGRAMS:
        parts = [getattr(cloud, kind) for cloud in held if getattr(cloud, kind) is not None]
        if parts and sum(float(part.counts.sum()) for part in parts):
            histograms[kind] = reduce(add, parts)
    classes: Counter[str] = Counter()
    for cloud in held:
        classes.update(cloud.classes or {})
    labelled = sum(classes.values())
    rings, missing = _rings(held)
    return SetStatistics(
        name=name,
        source=source,
        points=[cloud.points for cloud in held],
        neighbours={
            size: [cloud.neighbours[size] for cloud in held] for size in held[0].neighbours
        },
        histograms=histograms,
        rings=rings,
        missing=missing,
        classes={k: round(n / labelled, 6) for k, n in classes.most_common()} if labelled else None,
    )


def _rings(clouds: list[CloudStatistics]) -> tuple[dict[str, list[float]] | None, float | None]:
    found = [cloud.rings for cloud in clouds if cloud.rings is not None]
    if not found:
        return None, None
    usual = Counter(len(rings.points) for rings in found).most_common(1)[0][0]
    chosen = [rings for rings in found if len(rings.points) == usual]
    means = {
        name: np.mean([getattr(rings, name) for rings in chosen], axis=0).round(3).tolist()
        for name in ("points", "elevation", "range")
    }
    return means, round(float(np.mean([rings.missing for rings in chosen])), 4)


def read_statistics(path: Path) -> SetStatistics:
    """Read a set's statistics from a JSON file.

    Raises:
        MissingFileError: no such file.
        FileError: a file that holds something else.
    """
    content = read_json(path)
    try:
        return SetStatistics.from_json(content)
    except (ValueError, OverflowError) as error:
        raise FileError(path, str(error)) from error

"""What the numbers of a cloud say of its units and of the place where it was scanned."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from pcnn.datasets.placement import VoxelSize

#: Points whose nearest neighbour is looked for, and points that are looked at for them.
_QUERIES, _LOOKED_AT = 500, 300_000
#: Spacing beyond so many voxels, and width below so many, are those of other units.
_SPARSE, _NARROW = 10.0, 4.0
_ENOUGH = 100  # points


def nearest_distances(points: NDArray[np.float32]) -> NDArray[np.float64]:
    """Distances [min(P, 500)] from evenly chosen points [P, 3] to the nearest other point."""
    if len(points) < 2:
        return np.zeros(0)
    chosen = np.unique(np.linspace(0, len(points) - 1, _QUERIES).astype(np.int64))
    everything = torch.from_numpy(np.ascontiguousarray(points, np.float32))
    found = []
    for part in np.array_split(chosen, max(len(chosen) // 100, 1)):
        rows = torch.from_numpy(part)
        # differences, not the product form, whose rounding is centimetres at 80 m
        distance = torch.cdist(
            everything[rows], everything, compute_mode="donot_use_mm_for_euclid_dist"
        )
        distance[torch.arange(len(rows)), rows] = torch.inf
        found.append(distance.amin(1).double().numpy())
    return np.concatenate(found)


def unit_doubt(places: np.ndarray, voxel_size: VoxelSize) -> str | None:
    """Why coordinates may be no metres: hardly any voxels, or points far more than voxels apart."""
    if len(places) < _ENOUGH:
        return None
    edge = float(np.max(voxel_size))
    width = float(np.ptp(places, axis=0).max())
    asked = "are the coordinates metres? (--scale gives the metres in a unit)"
    if width < _NARROW * edge:
        return f"the cloud is {width:.3g} m wide, {width / edge:.2g} voxels of {edge:g} m: {asked}"
    if len(places) > _LOOKED_AT:  # the middle of a large cloud, as dense as the whole
        start = (len(places) - _LOOKED_AT) // 2
        places = places[np.argsort(places[:, 0])[start : start + _LOOKED_AT]]
    apart = float(np.median(nearest_distances((places - places.mean(0)).astype(np.float32))))
    if apart <= _SPARSE * edge:
        return None
    return f"points lie {apart:.3g} m apart, {apart / edge:.3g} voxels of the network: {asked}"


def full_intensity(top: float) -> float | None:
    """The number that is intensity 1, where the largest leaves no doubt: 255 or 65,535; or None."""
    return 255.0 if 128 < top <= 255 else 65535.0 if 4096 < top <= 65535 else None


#: Seen from the air: wider than this [m], and in cells of this edge [m] at most so many points a
#: square metre, in hardly any cell so many times the usual number: scanners on the ground see the
#: near ground far denser than the rest.
_WIDE, _CELL, _DENSE, _UNEVEN = 100.0, 4.0, 100.0, 4.0


def from_the_air(places: np.ndarray, points: int) -> bool:
    """Whether a cloud seems to have been seen from the air."""
    width = np.ptp(places[:, :2], axis=0) if len(places) else np.zeros(2)
    # of a few points each, or what is uneven is chance
    cell = max(_CELL, float(np.sqrt(width.prod() * 16 / max(len(places), 1))))
    if width.min() < max(_WIDE, 8 * cell):
        return False
    cells = np.floor((places[:, :2] - places[:, :2].min(0)) / cell).astype(np.int64)
    _, counts = np.unique(cells[:, 0] * (1 << 31) + cells[:, 1], return_counts=True)
    usual, many = np.quantile(counts, [0.5, 0.95])
    density = usual / cell**2 * points / len(places)
    return bool(many <= _UNEVEN * usual and density <= _DENSE)

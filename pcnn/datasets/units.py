"""Clouds whose coordinates are not in metres, as far as their numbers show it."""

from __future__ import annotations

import numpy as np

from pcnn.datasets.placement import VoxelSize
from pcnn.datasets.returns import valid_returns
from pcnn.datasets.statistics.neighbours import nearest_distances, neighbours_per_voxel
from pcnn.datasets.unit_doubt import UnitDoubt

#: Units other than the metre, and how many metres they are; the smallest change comes first.
UNITS = {"feet": 0.3048, "centimetres": 0.01, "millimetres": 0.001}

#: A voxel that sees fewer occupied ones about it, itself among them, is alone: sensors at sensible
#: voxel sizes give 3 to 10.
_LONELY = 1.25
_SENSIBLE = 2.0
_FEW_VOXELS = 4.0
_ENOUGH = 100
_LOOKED_AT = 300_000


def unit_doubt(points: np.ndarray, voxel_size: VoxelSize | None = None) -> UnitDoubt | None:
    """Say why coordinates look as if they were not metres.

    * degrees: longitude and latitude that span far less than the heights do;
    * a cloud that is only a few voxels wide, or whose voxels have no neighbours, while another unit
      would give them some.

    Args:
        points: [P, 3] in the coordinates of the file, before any centring; missing returns count
            for nothing.
        voxel_size: what a network was trained with [m]; None leaves the second rule out.

    Returns:
        The doubt, or None. Clouds of fewer than 100 points raise none.
    """
    places = np.asarray(points[valid_returns(points)], dtype=np.float64)[:, :3]
    if len(places) < _ENOUGH:
        return None
    found = _degrees(places)
    if found is not None or voxel_size is None:
        return found
    edge = float(np.max(voxel_size))
    width = float(np.ptp(places, axis=0).max())
    if width < _FEW_VOXELS * edge:
        return UnitDoubt(
            f"the cloud is {width:.3g} m wide, {width / edge:.2g} voxels of {edge:g} m: give "
            f"coordinates in metres, or a network that was trained with voxels of about "
            f"{fitting_cell(places):.2g} m"
        )
    part = _middle(places)
    if _neighbours(part, edge) >= _LONELY:
        return None
    spacing = float(np.median(nearest_distances((part - part.mean(0)).astype(np.float32))))
    sparse = f"points lie {spacing:.3g} m apart, which leaves voxels of {edge:g} m no neighbours"
    for unit, scale in UNITS.items():
        small = np.ptp(part, axis=0).max() * scale < _FEW_VOXELS * edge
        if not small and _neighbours(part * scale, edge) >= _SENSIBLE:
            return UnitDoubt(f"{sparse}: the numbers look like {unit}", scale)
    return UnitDoubt(
        f"{sparse}: give coordinates in metres, or a network that was trained with voxels of about "
        f"{fitting_cell(places):.2g} m"
    )


def fitting_cell(points: np.ndarray) -> float:
    """Edge of a voxel that suits a cloud: twice the median distance to the nearest point.

    Args:
        points: [P, 3] finite numbers.

    Returns:
        The edge in the unit of the points, in two digits; NaN where no two points differ.
    """
    apart = nearest_distances((points - points.mean(0)).astype(np.float32))
    apart = apart[apart > 0]
    return float(f"{2 * np.median(apart):.2g}") if len(apart) else float("nan")


def _degrees(places: np.ndarray) -> UnitDoubt | None:
    low, high = places.min(axis=0), places.max(axis=0)
    wide, tall = (high - low)[:2].max(), high[2] - low[2]
    largest = np.abs(places).max(axis=0)
    if largest[0] > 180 or largest[1] > 90 or not 0 < wide < 1 or largest[:2].max() < 10 * wide:
        return None
    if tall < 5 * wide:
        return None
    zone = int((low[0] + 180) // 6) + 1
    return UnitDoubt(
        f"x and y look like degrees ({low[0]:.4f}..{high[0]:.4f}, {low[1]:.4f}..{high[1]:.4f}): "
        f"project the cloud to metres first, such as UTM zone {zone}"
    )


def _middle(places: np.ndarray) -> np.ndarray:
    """The middle of a large cloud along x; its points lie as close to each other as they did."""
    if len(places) <= _LOOKED_AT:
        return places
    start = (len(places) - _LOOKED_AT) // 2
    return places[np.argsort(places[:, 0])[start : start + _LOOKED_AT]]


def _neighbours(places: np.ndarray, edge: float) -> float:
    try:
        return neighbours_per_voxel((places - places.min(axis=0)).astype(np.float32), edge)
    except ValueError:  # too wide for voxels to be numbered
        return 1.0

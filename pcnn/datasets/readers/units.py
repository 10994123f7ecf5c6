"""Clouds whose coordinates are not in metres: a header says so, or the numbers show it.

Sources: LAS specification 1.4 R15 (ASPRS, 2019), coordinate reference system records; OGC GeoTIFF
1.1, ProjLinearUnitsGeoKey; OGC 12-063 (WKT).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.datasets.density import nearest_distances, neighbours_per_voxel
from pcnn.datasets.placement import VoxelSize
from pcnn.datasets.readers.las_header import crs_records
from pcnn.datasets.readers.table import valid_returns


@dataclass(frozen=True)
class UnitDoubt:
    """Why the unit of a cloud looks wrong.

    Args:
        reason: what the numbers show, and what to do.
        scale: metres in a unit of the file, where one explains the numbers; else None.
    """

    reason: str
    scale: float | None = None

    def __str__(self) -> str:
        return self.reason


_WKT, _KEYS = 2112, 34735
_LINEAR = 3076  # ProjLinearUnitsGeoKey

#: Units of EPSG: name and metres.
_EPSG = {
    9002: ("foot", 0.3048),
    9003: ("US survey foot", 1200 / 3937),
}
#: Parts of WKT whose units are not those of the coordinates.
_ELSEWHERE = re.compile(
    r"(?:ELLIPSOID|SPHEROID|PARAMETER)\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]", re.I
)
_UNIT = re.compile(r'(?:LENGTH)?UNIT\["([^"]*)"\s*,\s*([0-9.eE+-]+)', re.IGNORECASE)
_ANGLE = re.compile(r"degree|radian|grad", re.IGNORECASE)


def declared_unit(path: Path) -> UnitDoubt | None:
    """Say that a file's header declares a unit that is not the metre.

    Args:
        path: the file; one that is no LAS file declares nothing, and a damaged record neither.

    Returns:
        The unit with its scale, or None: metres, degrees, or no declaration.
    """
    if path.suffix.lower() not in (".las", ".laz"):
        return None
    found: tuple[str, float] | None = None
    for number, data in crs_records(path):
        # text is the newer way, and wins where a file has both
        if number == _WKT:
            found = unit_of_wkt(data.decode("utf-8", "replace")) or found
        elif number == _KEYS and found is None:
            found = unit_of_keys(data)
    if found is None or abs(found[1] - 1.0) < 1e-9:
        return None
    name, scale = found
    return UnitDoubt(f"its header says that coordinates are in the unit {name!r}", scale)


def unit_of_wkt(text: str) -> tuple[str, float] | None:
    """Name of the unit of length of coordinates in WKT 1 or 2, and its metres."""
    for name, scale in _UNIT.findall(_ELSEWHERE.sub("", text)):
        if not _ANGLE.search(name):
            try:
                metres = float(scale)
            except ValueError:
                continue
            return (name, metres) if 0 < metres < 1e6 else None
    return None


def unit_of_keys(data: bytes) -> tuple[str, float] | None:
    """The same of GeoTIFF's keys: four numbers of 16 bits each, the first four are a head."""
    numbers = struct.unpack(f"<{len(data) // 2}H", data[: len(data) // 2 * 2])
    for key, place, _, value in zip(*(iter(numbers[4:]),) * 4, strict=False):
        if key == _LINEAR and place == 0:
            return _EPSG.get(value)
    return None


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

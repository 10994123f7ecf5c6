"""The unit of length that the header of a LAS or LAZ file declares, where it is no metre.

Sources: LAS specification 1.4 R15 (ASPRS, 2019), coordinate reference system records; OGC GeoTIFF
1.1, ProjLinearUnitsGeoKey; OGC 12-063 (WKT).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pcnn.datasets.unit_doubt import UnitDoubt

_USER = b"LASF_Projection"
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

#: Records in front of the points that are looked at, and bytes of one.
_MOST, _LONGEST = 1000, 1 << 20


def declared_unit(path: Path) -> UnitDoubt | None:
    """Say that a file's header declares a unit that is not the metre.

    Args:
        path: the file; one that is no LAS file declares nothing, and a damaged record neither.

    Returns:
        The unit with its scale, or None: metres, degrees, or no declaration.

    Raises:
        OSError: the file cannot be read.
    """
    if path.suffix.lower() not in (".las", ".laz"):
        return None
    found: tuple[str, float] | None = None
    with path.open("rb") as file:
        for number, data in _projection(file):
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


def _projection(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Number and content of the records in front of the points, and behind them, about the CRS."""
    head = file.read(375)
    if len(head) < 227 or head[:4] != b"LASF":
        return
    (start,) = struct.unpack_from("<H", head, 94)
    (count,) = struct.unpack_from("<I", head, 100)
    yield from _records(file, start, count, "<16sHH", 54)
    if head[25] >= 4 and len(head) >= 247:
        start, count = struct.unpack_from("<QI", head, 235)
        yield from _records(file, start, count, "<16sHQ", 60)


def _records(
    file: BinaryIO, start: int, count: int, form: str, size: int
) -> Iterator[tuple[int, bytes]]:
    for _ in range(min(count, _MOST)):
        file.seek(start)
        head = file.read(size)
        if len(head) < size:
            return
        user, number, length = struct.unpack_from(form, head, 2)
        if user.split(b"\0")[0] == _USER and length <= _LONGEST:
            yield number, file.read(length)
        start += size + length

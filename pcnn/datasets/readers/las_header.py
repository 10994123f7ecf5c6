"""The announcements of a LAS or LAZ file, held against its size before a library believes them.

Sources: LAS specification 1.4 R15 (ASPRS, 2019); M. Isenburg, LASzip: lossless compression of lidar
data, 2013, and the layout of its chunk table in LASzip 3.4.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pcnn.errors import FileError

#: Bytes of a header by minor version.
_HEADER = {0: 227, 1: 227, 2: 227, 3: 235, 4: 375, 5: 393}

#: Bytes of a record by point format.
_RECORD = (20, 28, 26, 34, 57, 63, 30, 36, 38, 59, 67)

#: Variable length records of a file; real ones have fewer than a hundred.
_MOST_RECORDS = 10_000

#: The name of the record that says how points are compressed: user and number.
_LASZIP = (b"laszip encoded", 22204)

#: The user of records about the coordinate reference system, and bytes of one that is looked at.
_CRS, _LONGEST = b"LASF_Projection", 1 << 20

#: Chunks of any number of points each.
_VARIABLE = 0xFFFFFFFF

#: Lidar packs to a fifth or a twentieth; points that are all the same, to a few hundredths. Larger
#: announcements than so many times the file, beyond the bytes that are harmless, are refused.
_RATIO = 500
_HARMLESS = 1 << 28


@dataclass(frozen=True)
class LasSize:
    """How much a file holds.

    Args:
        points: number of points.
        record: bytes of a point.
        start: bytes in front of the points.
        packed: whether the points are compressed.
        placing: scale factors of x, y, z, then their offsets [m].
    """

    points: int
    record: int
    start: int
    packed: bool
    placing: tuple[float, ...]


def check_las(path: Path) -> LasSize:
    """Check all counts, offsets and lengths that decide how much is read and reserved.

    The work is bounded: the header, the heads of at most 10,000 records on either side of the
    points, and the head of the chunk table.

    Raises:
        OSError: the file cannot be read.
        FileError: an announcement that the file cannot hold.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        try:
            return _checked(path, file, size)
        except _BrokenRule as broken:
            raise FileError(path, f"not a whole LAS file: {broken}") from None


class _BrokenRule(Exception):
    """Which rule a file breaks."""


def _checked(path: Path, file: BinaryIO, size: int) -> LasSize:
    head = _at(file, 0, min(size, 255), "header")
    if head[:4] != b"LASF":
        raise _BrokenRule("the first four bytes are not LASF")
    if size < 227:
        raise _BrokenRule(f"{size} bytes hold no header")
    major, minor = head[24], head[25]
    if major != 1 or minor not in _HEADER:
        raise _BrokenRule(f"version {major}.{minor}; known are 1.0 to 1.5")
    own, start, vlrs, kind, record, points = struct.unpack_from("<HIIBHI", head, 94)
    if own < _HEADER[minor]:
        raise _BrokenRule(
            f"a header of {own} bytes; version 1.{minor} has {_HEADER[minor]} or more"
        )
    if not own <= start <= size:
        raise _BrokenRule(
            f"points at byte {start}, a header of {own} and a file of {size} bytes do not agree"
        )
    packed, number = kind & 0xC0, kind & 0x3F
    if packed not in (0, 0x80) or number >= len(_RECORD):
        raise _BrokenRule(f"unknown point format {kind}")
    if record < _RECORD[number]:
        raise _BrokenRule(
            f"points of {record} bytes; format {number} takes {_RECORD[number]} or more"
        )
    placing = struct.unpack_from("<6d", head, 131)
    if not all(map(math.isfinite, placing)) or 0.0 in placing[:3]:
        raise _BrokenRule("scale factors or offsets that are zero, NaN or infinite")
    laszip = None
    for found in _records(file, own, start, vlrs, extended=False):
        if (found.user, found.number) == _LASZIP:
            laszip = _at(file, found.start, found.length, "records in front of the points")
    if minor >= 4:
        wide = _at(file, 235, 20, "header")
        first, evlrs, points = struct.unpack("<QIQ", wide)
        if evlrs:
            if not start <= first <= size:
                raise _BrokenRule(f"extended records at byte {first} of a file of {size}")
            deque(_records(file, first, size, evlrs, extended=True), maxlen=0)
    whole = LasSize(points, record, start, bool(packed), placing)
    if not packed:
        held = (size - start) // record
        if points > held:
            raise FileError(
                path, f"truncated: the header announces {points} points, the file holds {held}"
            )
    elif points:
        _check_packed(file, whole, start, size, laszip)
    return whole


def crs_records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the records about the coordinate reference system.

    They lie in front of the points and behind them; a file that is damaged, or no LAS file, has
    those alone that come before the damage.
    """
    with path.open("rb") as file, suppress(_BrokenRule):
        size = file.seek(0, 2)
        head = _at(file, 0, min(size, 255), "header")
        if head[:4] != b"LASF" or size < 227:
            return
        own, start, vlrs = struct.unpack_from("<HII", head, 94)
        found = _records(file, own, start, vlrs, extended=False)
        if head[25] >= 4:
            first, evlrs = struct.unpack("<QI", _at(file, 235, 12, "header"))
            found = chain(found, _records(file, first, size, evlrs, extended=True))
        for record in found:
            if record.user == _CRS and record.length <= _LONGEST:
                yield record.number, _at(file, record.start, record.length, "records")


class _Record(NamedTuple):
    """A variable length record, and where its content lies."""

    user: bytes
    number: int
    start: int
    length: int


def _records(file: BinaryIO, start: int, end: int, count: int, extended: bool) -> Iterator[_Record]:
    """Walk over variable length records."""
    head = 60 if extended else 54
    name = "extended records" if extended else "records in front of the points"
    if count > min(_MOST_RECORDS, (end - start) // head):
        raise _BrokenRule(f"{count} {name}; there is room for {(end - start) // head}")
    for _ in range(count):
        if start + head > end:
            raise _BrokenRule(f"the {name} reach beyond their end at byte {end}")
        user, number, length = struct.unpack(
            "<16sHQ" if extended else "<16sHH", _at(file, start + 2, head - 34, name)
        )
        start += head
        if start + length > end:
            raise _BrokenRule(f"the {name} reach beyond their end at byte {end}")
        yield _Record(user.split(b"\0")[0], number, start, length)
        start += length


def _check_packed(
    file: BinaryIO, found: LasSize, start: int, size: int, laszip: bytes | None
) -> None:
    """Check how points are compressed, and where the table of their chunks lies."""
    if laszip is None or len(laszip) < 34:
        raise _BrokenRule("compressed points without the record that says how")
    kind, chunk = struct.unpack_from("<H10xI", laszip)
    (items,) = struct.unpack_from("<H", laszip, 32)
    if len(laszip) < 34 + 6 * items:
        raise _BrokenRule(f"{items} items of a compressed point; their list is shorter")
    width = sum(struct.unpack_from("<H", laszip, 36 + 6 * i)[0] for i in range(items))
    if width != found.record:
        raise _BrokenRule(f"compressed points of {width} bytes, points of {found.record}")
    announced = found.points * found.record
    if announced > max(_HARMLESS, _RATIO * size):
        raise _BrokenRule(
            f"{found.points} points of {found.record} bytes in a file of {size} bytes; no lidar "
            f"packs to less than one part in {_RATIO}"
        )
    if kind not in (2, 3):
        raise _BrokenRule(f"compression {kind}; known are 2 and 3, which have chunks")
    (table,) = struct.unpack("<q", _at(file, start, 8, "place of the chunk table"))
    first = start + 8
    if table == -1:  # a writer that could not go back
        (table,) = struct.unpack("<q", _at(file, size - 8, 8, "place of the chunk table"))
    if not first <= table <= size - 8:
        raise _BrokenRule(f"the chunk table lies at byte {table} of a file of {size}")
    version, chunks = struct.unpack("<II", _at(file, table, 8, "chunk table"))
    most = (table - first) // found.record  # the first point of a chunk is not compressed
    if version != 0 or not 0 < chunks <= most:
        raise _BrokenRule(f"a chunk table of {chunks} chunks; there is room for {most}")
    if chunk != _VARIABLE and not (chunks - 1) * chunk < found.points <= chunks * chunk:
        raise _BrokenRule(f"{found.points} points in {chunks} chunks of {chunk}")


def _at(file: BinaryIO, place: int, length: int, name: str) -> bytes:
    file.seek(place)
    data = file.read(length)
    if len(data) < length:
        raise _BrokenRule(f"it ends within the {name}")
    return data
